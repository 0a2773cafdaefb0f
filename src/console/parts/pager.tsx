import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import { Link } from '../navigation.tsx'
import { type Query, urlWith } from '../router.ts'

interface PagerProps {
  pathname: string
  query: Query
  next: string | undefined
  /** Of the cursor in the query, where a page has several lists. */
  name?: string
}

/** Lists are read page by page, by cursors that only go on; the browser's own back goes back. */
export const Pager = ({ pathname, query, next, name = 'cursor' }: PagerProps): JSX.Element | null => {
  const { t } = useApp()
  const isFirst = query[name] === undefined
  if (isFirst && next === undefined) return null
  return (
    <p class="pager">
      {!isFirst && <Link href={urlWith(pathname, { ...query, [name]: undefined })}>{t.firstPage}</Link>}
      {next !== undefined && <Link href={urlWith(pathname, { ...query, [name]: next })}>{t.more}</Link>}
    </p>
  )
}
