import type { ConsoleState } from './console-files.ts'

/** Seconds after which the browser looks again by itself. */
export const CONSOLE_RETRY_SECONDS = 3

const WORDS: Readonly<Record<Exclude<ConsoleState, 'ready'>, { title: string; text: string }>> = {
  building: {
    title: 'The console is being built',
    text: 'This takes some seconds, once. The page opens by itself when it is done.',
  },
  missing: {
    title: 'The console is not built',
    text: 'Run <code>npm run build:console</code> where opledger is installed (with its development dependencies); nothing has to be restarted. <code>npm start</code> does it by itself, and logs why when it cannot. The API works without the console: see <a href="/docs">/docs</a>.',
  },
}

/** What stands at `/console` until there is a build. All text is ours, so nothing needs escaping. */
export const renderConsoleAbsence = (state: Exclude<ConsoleState, 'ready'>): string => {
  const { title, text } = WORDS[state]
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta http-equiv="refresh" content="${CONSOLE_RETRY_SECONDS}"><title>${title}</title></head>
<body>
<h1>${title}</h1>
<p>${text}</p>
</body>
</html>
`
}
