import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import readline from 'node:readline'
import { until } from './processes.ts'

/**
 * The receiving end of sd_notify: a unix datagram socket, for which Node has no API and perl has one. It prints each datagram as
 * a line, its newlines as spaces, and closes what descriptors come along, which is what a sender waits for.
 */
const RECEIVE = `
use Socket; $| = 1;
socket(my $s, AF_UNIX, SOCK_DGRAM, 0) or die $!;
bind($s, sockaddr_un($ARGV[0])) or die $!;
print "listening\\n";
while (defined recv($s, my $m, 65536, 0)) { $m =~ s/\\n/ /g; print "$m\\n" }
`

export interface NotifySocket {
  path: string
  /** Every message so far, without those that only wait for the ones before them. */
  messages(): string[]
  until(what: string, holds: (messages: string[]) => boolean): Promise<void>
  close(): Promise<void>
}

export const openNotifySocket = async (): Promise<NotifySocket> => {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-notify-'))
  const file = path.join(directory, 'socket')
  const child: ChildProcess = spawn('perl', ['-e', RECEIVE, file], { stdio: ['ignore', 'pipe', 'inherit'] })
  const lines: string[] = []
  if (child.stdout) readline.createInterface({ input: child.stdout }).on('line', (line) => lines.push(line))
  await until('the notify socket is there', () => lines[0] === 'listening')
  const messages = (): string[] => lines.slice(1).filter((line) => line !== 'BARRIER=1')
  return {
    path: file,
    messages,
    until: (what, holds) => until(`${what}; told so far: ${messages().join(', ')}`, () => holds(messages())),
    async close() {
      child.kill('SIGKILL')
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
      rmSync(directory, { recursive: true, force: true })
    },
  }
}
