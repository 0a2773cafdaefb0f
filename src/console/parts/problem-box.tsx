import type { JSX } from 'preact'
import { type Problem, UNREACHABLE } from '../api/problem.ts'
import { useApp } from '../app-context.ts'

/** What the API says when it refuses, in its own words, with the page that explains it. */
export const ProblemBox = ({ problem, isStale = false }: { problem: Problem; isStale?: boolean }): JSX.Element => {
  const { t } = useApp()
  const { body } = problem
  const isOurs = body.code === UNREACHABLE
  return (
    <div class="box bad" role="alert">
      <p class="box-title">{isOurs ? t.problem.unreachable : body.title || t.problem.title}</p>
      <p>{isOurs ? t.problem.unreachableDetail(body.detail) : body.detail}</p>
      {body.errors && body.errors.length > 0 && (
        <ul>
          {body.errors.map(({ detail, pointer, line }) => (
            <li key={`${line}${pointer}${detail}`}>
              {line !== undefined && `${t.problem.line(line)}: `}
              {pointer && <code>{pointer}</code>} {detail}
            </li>
          ))}
        </ul>
      )}
      {!isOurs && (
        <p class="small">
          <code>{body.code}</code> · <a href={`/problems/${encodeURIComponent(body.code)}`}>{t.problem.meaning}</a>
          {body.request_id && <> · {t.problem.request(body.request_id)}</>}
        </p>
      )}
      {isStale && <p class="small">{t.problem.keptOld}</p>}
    </div>
  )
}
