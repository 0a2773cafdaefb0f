import type { JSX } from 'preact'
import { Link } from '../navigation.tsx'
import { pathOf } from '../router.ts'

export const OperationLink = ({ id }: { id: string }): JSX.Element => (
  <Link href={pathOf({ page: 'operation', id })}>
    <code>{id}</code>
  </Link>
)

export const OperationLinks = ({ ids }: { ids: readonly string[] }): JSX.Element => (
  <>
    {ids.map((id, index) => (
      <span key={id}>
        {index > 0 && ', '}
        <OperationLink id={id} />
      </span>
    ))}
  </>
)
