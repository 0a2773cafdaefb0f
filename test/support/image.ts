import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * Carries out a Dockerfile without a container engine: each stage is a directory, COPY copies into it, RUN runs in it. It knows
 * what ours uses, and throws at anything else. Paths in RUN are those of the machine, so a RUN may name none but `/data`, which
 * is put below the stage.
 */
const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const RUN_MS = 900_000

export interface Image {
  /** Of the last stage; /app is `app` in it. */
  directory: string
  env: Record<string, string>
  workdir: string
  user: { uid: number; gid: number }
  command: string[]
  healthCheck: string[]
}

export const instructionsOf = (text: string): { name: string; rest: string }[] =>
  text
    .replace(/^\s*#.*\n/gm, '')
    .replace(/\\\n\s*/g, ' ')
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => {
      const [, name = '', rest = ''] = /^(\S+)\s+(.*)$/.exec(line.trim()) ?? []
      return { name, rest }
    })

/** `searchPath` leads to the Node and npm that run it. */
export const buildImage = (directory: string, searchPath: string): Image => {
  const stages = new Map<string, string>()
  let stage = ''
  let image: Image | null = null
  const inStage = (absolute: string): string => path.join(stage, path.posix.resolve(image?.workdir ?? '/', absolute))

  for (const { name, rest } of instructionsOf(readFileSync(path.join(ROOT, 'Dockerfile'), 'utf8'))) {
    if (name === 'FROM') {
      const alias = / AS (\S+)$/.exec(rest)?.[1] ?? 'last'
      stage = path.join(directory, alias)
      stages.set(alias, stage)
      mkdirSync(stage, { recursive: true })
      image = {
        directory: stage,
        env: {},
        workdir: '/',
        user: { uid: 0, gid: 0 },
        command: [],
        healthCheck: [],
      }
      continue
    }
    if (image === null) {
      if (name === 'ARG') continue
      throw new Error(`${name} before FROM`)
    }
    switch (name) {
      case 'WORKDIR':
        image.workdir = rest
        mkdirSync(inStage('.'), { recursive: true })
        break
      case 'COPY': {
        const words = rest.split(' ')
        const from = /^--from=(.*)$/.exec(words[0] ?? '')?.[1]
        const sources = words.slice(from === undefined ? 0 : 1, -1)
        const target = words.at(-1) ?? ''
        for (const source of sources) {
          const origin = from === undefined ? path.join(ROOT, source) : path.join(stages.get(from) ?? '', source)
          const into = target === './' ? path.join(inStage('.'), path.basename(source)) : inStage(target)
          cpSync(origin, into, { recursive: true })
        }
        break
      }
      case 'RUN':
        execFileSync('bash', ['-c', rest.replaceAll(/(?<=\s)\/data\b/g, inStage('/data'))], {
          cwd: inStage('.'),
          env: { PATH: searchPath, HOME: os.homedir(), CI: 'true', ...image.env },
          stdio: ['ignore', 'ignore', 'pipe'],
          timeout: RUN_MS,
        })
        break
      case 'ENV':
        for (const [, key = '', value = ''] of rest.matchAll(/(\w+)=(\S+)/g)) image.env[key] = value
        break
      case 'USER': {
        const [uid = 0, gid = 0] = rest.split(':').map(Number)
        image.user = { uid, gid }
        break
      }
      case 'CMD':
        image.command = JSON.parse(rest)
        break
      case 'HEALTHCHECK':
        image.healthCheck = JSON.parse(rest.replace(/^.*? CMD /, ''))
        break
      case 'LABEL':
      case 'VOLUME':
      case 'EXPOSE':
      case 'STOPSIGNAL':
        break
      default:
        throw new Error(`the test cannot carry out ${name}`)
    }
  }
  if (image === null) throw new Error('the Dockerfile has no stage')
  return image
}

/** The Node that the image is of, from the npm registry: the directory of its program. Throws where it cannot be had. */
export const fetchImageNode = (directory: string): string => {
  const text = readFileSync(path.join(ROOT, 'Dockerfile'), 'utf8')
  const major = /^ARG NODE_VERSION=(\d+)$/m.exec(text)?.[1]
  const packed = execFileSync('npm', ['pack', '--silent', `node-${process.platform}-${process.arch}@${major}`], {
    cwd: directory,
    encoding: 'utf8',
    timeout: RUN_MS,
  }).trim()
  execFileSync('tar', ['xzf', packed, '--strip-components=1'], { cwd: directory })
  rmSync(path.join(directory, packed))
  return path.join(directory, 'bin')
}
