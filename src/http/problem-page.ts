import type { ErrorCode } from '../domain/errors.ts'
import { PROBLEMS } from './problems.ts'

/** What a problem's `type` URL leads to. All text is ours, so nothing needs escaping. */
export const renderProblemPage = (code: ErrorCode): string => {
  const { status, title, meaning, action } = PROBLEMS[code]
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>${title} (${code})</title></head>
<body>
<h1>${title}</h1>
<p><code>${code}</code>, HTTP status ${status}</p>
<h2>What it means</h2>
<p>${meaning}</p>
<h2>What to do</h2>
<p>${action}</p>
</body>
</html>
`
}

export const describeProblem = (code: ErrorCode) => {
  const { status, title, meaning, action } = PROBLEMS[code]
  return { code, status, title, meaning, action }
}
