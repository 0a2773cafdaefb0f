/** Types of cancel-button.js: as much of the operation as it reads. */
export interface ShownOperation {
  status: string
  /** Grows with each change. */
  version: number
  counts: { total: number; applied: number; skipped: number; failed: number; uncertain: number; unprocessed: number }
  progress: { ratio: number | null; eta: string | null }
  cancel: { possible: boolean; guarantee: string; requested_at: string | null }
}

export interface Shown {
  headline: string
  detail: string
  canCancel: boolean
  promise: string
  isFinal: boolean
}

type Fetch = (url: string, init: RequestInit) => Promise<Response>
type Sleep = (ms: number, signal?: AbortSignal) => Promise<void>

export function isFinal(operation: Pick<ShownOperation, 'status'>): boolean
export function describe(operation: ShownOperation, now?: number): Shown
export function follow(
  url: string,
  options: {
    onState: (operation: ShownOperation) => void
    onTrouble?: (message: string) => void
    signal?: AbortSignal
    fetch?: Fetch
    sleep?: Sleep
  },
): Promise<void>
export function cancel(
  url: string,
  options: { reason: string; fetch?: Fetch; sleep?: Sleep },
): Promise<ShownOperation | null>
/** `root`: an Element. */
export function mount(root: object, url: string): () => void
