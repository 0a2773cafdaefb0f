import type { Caller } from './api/client.ts'
import type { Language } from './format.ts'

/**
 * What the browser keeps. The key only as long as its tab, the language longer. A browser may refuse to keep anything
 * (private windows, policies): then it is forgotten with the page.
 */
const CALLER = 'opledger.caller'
const LANGUAGE = 'opledger.language'

export const readKept = (storage: () => Storage, name: string): string | null => {
  try {
    return storage().getItem(name)
  } catch {
    return null
  }
}

export const keep = (storage: () => Storage, name: string, value: string | null): void => {
  try {
    if (value === null) storage().removeItem(name)
    else storage().setItem(name, value)
  } catch {
    // refused, or full: it holds for this page only
  }
}

const session = (): Storage => sessionStorage
const local = (): Storage => localStorage

export const readCaller = (): Caller => {
  try {
    const kept: unknown = JSON.parse(readKept(session, CALLER) ?? '{}')
    const member = (name: string): string | null => {
      const value = (kept as Record<string, unknown>)[name]
      return typeof value === 'string' && value !== '' ? value : null
    }
    return { key: member('key'), name: member('name') }
  } catch {
    return { key: null, name: null }
  }
}

export const keepCaller = (caller: Caller): void => keep(session, CALLER, JSON.stringify(caller))

export const readLanguage = (): Language => {
  const kept = readKept(local, LANGUAGE)
  if (kept === 'en' || kept === 'ko') return kept
  return navigator.languages.some((language) => language.toLowerCase().startsWith('ko')) &&
    !navigator.languages[0]?.toLowerCase().startsWith('en')
    ? 'ko'
    : 'en'
}

export const keepLanguage = (language: Language): void => keep(local, LANGUAGE, language)
