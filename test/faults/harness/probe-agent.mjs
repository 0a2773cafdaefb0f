/**
 * Loaded before an entry file of the build (node --import …): tells the suite, over the IPC channel, when this process stands
 * at an armed point, and holds it there until the suite has decided. Everything that is decided here is whether to ask.
 *
 * suite → agent   {armed?: [point, …], ask: number}   answered with {asked: number}
 * agent → suite   {at: number, point, subject}
 * suite → agent   {at: number, then: 'go' | 'throw'}
 */
import { installProbe } from '../../../dist/probe.js'

let armed = new Set()
let hits = 0
const standing = new Map()

process.on('message', (message) => {
  if (message.ask !== undefined) {
    if (message.armed) armed = new Set(message.armed)
    process.send({ asked: message.ask })
  } else if (message.at !== undefined) {
    standing.get(message.at)?.(message.then)
    standing.delete(message.at)
  }
})
process.channel?.unref()

installProbe(async (point, subject) => {
  if (!armed.has(point) || !process.connected) return
  hits += 1
  const at = hits
  const decided = new Promise((resolve) => standing.set(at, resolve))
  process.send({ at, point, subject })
  if ((await decided) === 'throw') throw new Error(`thrown at ${point}`)
})
