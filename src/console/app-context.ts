import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { ApiClient, Caller } from './api/client.ts'
import type { Language } from './format.ts'
import type { Texts } from './texts.ts'

/** What every page works with. */
export interface AppContext {
  client: ApiClient
  caller: Caller
  /** The service has asked for a key, or refused the one it got. */
  isKeyNeeded: boolean
  setCaller: (caller: Caller) => void
  language: Language
  setLanguage: (language: Language) => void
  t: Texts
}

export const Context = createContext<AppContext | null>(null)

export const useApp = (): AppContext => {
  const app = useContext(Context)
  if (app === null) throw new Error('outside of the app')
  return app
}
