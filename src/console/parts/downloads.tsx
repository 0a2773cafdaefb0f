import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { Problem, unreachable } from '../api/problem.ts'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { ProblemBox } from './problem-box.tsx'

const FORMS = [
  { name: 'CSV', accept: 'text/csv', extension: 'csv' },
  { name: 'NDJSON', accept: 'application/x-ndjson', extension: 'ndjson' },
] as const
type Form = (typeof FORMS)[number]

interface DownloadsProps {
  operationId: string
  filters: { state: string | undefined; failure_class: string | undefined; key: string | undefined }
}

/**
 * All rows as a file. A plain link could neither carry the key nor say which form is wanted, so it is fetched; the
 * browser keeps what is large on the disk.
 */
export const Downloads = ({ operationId, filters }: DownloadsProps): JSX.Element => {
  const { client, t } = useApp()
  const path = { id: operationId }
  return (
    <p class="downloads">
      {t.operation.downloads}:{' '}
      {FORMS.map((form) => (
        <Download
          key={`items ${form.name}`}
          text={`${t.operation.downloadItems}, ${form.name}`}
          fileName={`${operationId}-items.${form.extension}`}
          open={() => client.open('/operations/{id}/items', { path, query: filters, accept: form.accept })}
        />
      ))}
      {FORMS.map((form: Form) => (
        <Download
          key={`ledger ${form.name}`}
          text={`${t.operation.downloadLedger}, ${form.name}`}
          fileName={`${operationId}-ledger.${form.extension}`}
          open={() => client.open('/operations/{id}/ledger', { path, accept: form.accept })}
        />
      ))}
    </p>
  )
}

interface DownloadProps {
  text: string
  fileName: string
  open: () => Promise<Response>
}

const Download = ({ text, fileName, open }: DownloadProps): JSX.Element => {
  const { t, language } = useApp()
  const [received, setReceived] = useState<number | null>(null)
  const [problem, setProblem] = useState<Problem | null>(null)
  const run = async (): Promise<void> => {
    setReceived(0)
    setProblem(null)
    try {
      save(await readCounted(await open(), setReceived), fileName)
    } catch (error) {
      setProblem(error instanceof Problem ? error : unreachable(String(error), error))
    } finally {
      setReceived(null)
    }
  }
  return (
    <>
      <button type="button" class="link" disabled={received !== null} onClick={run}>
        {text}
        {received !== null &&
          ` (${t.operation.downloading(`${formatCount(Math.round(received / 1_000), language)} kB`)})`}
      </button>
      {problem !== null && <ProblemBox problem={problem} />}
    </>
  )
}

const SHOW_EVERY_MS = 250

const readCounted = async (response: Response, show: (bytes: number) => void): Promise<Blob> => {
  let bytes = 0
  let shownAtMs = 0
  const counter = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.byteLength
      const nowMs = performance.now()
      if (nowMs - shownAtMs > SHOW_EVERY_MS) {
        shownAtMs = nowMs
        show(bytes)
      }
      controller.enqueue(chunk)
    },
  })
  const headers = { 'content-type': response.headers.get('content-type') ?? '' }
  return new Response(response.body?.pipeThrough(counter as ReadableWritablePair<Uint8Array, Uint8Array>), {
    headers,
  }).blob()
}

const save = (content: Blob, fileName: string): void => {
  const url = URL.createObjectURL(content)
  const link = document.createElement('a')
  link.href = url
  link.download = fileName
  link.click()
  // the browser has taken it by then
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}
