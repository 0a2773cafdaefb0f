import { hostname, userInfo } from 'node:os'
import type { AuditAuthor } from '../domain/audit.ts'

/** Who runs a command on the database itself, as far as this machine knows. */
export const commandLineAuthor = (): AuditAuthor => ({
  actor: `${userName()}@${hostname()}`,
  auth: 'command_line',
  scope: null,
  requestId: null,
  traceId: null,
})

/** In a container the user may have no name. */
const userName = (): string => {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`
  }
}
