import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import type { Language } from '../format.ts'
import { Link } from '../navigation.tsx'
import { pathOf, type Route } from '../router.ts'
import { TEXTS } from '../texts.ts'

const PAGES = ['today', 'operations', 'reconciliation', 'incidents', 'types', 'workers'] as const

/** The page in the navigation that a page below it belongs to. */
const sectionOf = ({ page }: Route): string => {
  if (page === 'operation' || page === 'item' || page === 'replay') return 'operations'
  return page === 'incident' ? 'incidents' : page
}

interface HeaderProps {
  route: Route
  openCaller: () => void
  isCallerOpen: boolean
}

export const Header = ({ route, openCaller, isCallerOpen }: HeaderProps): JSX.Element => {
  const { t, language, setLanguage, caller } = useApp()
  const who = caller.name ?? (caller.key === null ? t.caller.button : t.caller.withKey)
  return (
    <header>
      <nav aria-label={t.navigation}>
        <span class="brand">opledger</span>
        <ul>
          {PAGES.map((page) => (
            <li key={page}>
              <Link href={pathOf({ page })} aria-current={sectionOf(route) === page ? 'page' : undefined}>
                {t.pages[page]}
              </Link>
            </li>
          ))}
        </ul>
      </nav>
      <div class="header-tools">
        <select
          aria-label={t.language}
          value={language}
          onChange={(event) => setLanguage(event.currentTarget.value as Language)}
        >
          {Object.entries(TEXTS).map(([code, { languageName }]) => (
            <option key={code} value={code} lang={code}>
              {languageName}
            </option>
          ))}
        </select>
        <button type="button" aria-expanded={isCallerOpen} onClick={openCaller}>
          {who}
        </button>
      </div>
    </header>
  )
}
