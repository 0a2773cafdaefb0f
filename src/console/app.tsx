import type { JSX } from 'preact'
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { ApiClient, type Caller } from './api/client.ts'
import { Context, useApp } from './app-context.ts'
import type { Language } from './format.ts'
import { keepCaller, keepLanguage, readCaller, readLanguage } from './kept.ts'
import { usePlace } from './navigation.tsx'
import { CallerForm } from './pages/caller.tsx'
import { IncidentPage } from './pages/incident.tsx'
import { IncidentsPage } from './pages/incidents.tsx'
import { ItemPage } from './pages/item.tsx'
import { OperationPage } from './pages/operation.tsx'
import { OperationsPage } from './pages/operations.tsx'
import { ReconciliationPage } from './pages/reconciliation.tsx'
import { ReplayPage } from './pages/replay.tsx'
import { TodayPage } from './pages/today.tsx'
import { TypesPage } from './pages/types.tsx'
import { WorkersPage } from './pages/workers.tsx'
import { Header } from './parts/header.tsx'
import type { Query, Route } from './router.ts'
import { TEXTS } from './texts.ts'

export const App = (): JSX.Element => {
  const [caller, setCallerState] = useState(readCaller)
  const [language, setLanguageState] = useState(readLanguage)
  const [isKeyNeeded, setIsKeyNeeded] = useState(false)
  const [isCallerOpen, setIsCallerOpen] = useState(false)
  const latestCaller = useRef(caller)
  const client = useMemo(
    () =>
      new ApiClient({
        // what is remembered of answers is the client's business, not the browser's
        fetch: (input, init) => fetch(input, { ...init, cache: 'no-store' }),
        caller: () => latestCaller.current,
        onUnauthenticated: () => setIsKeyNeeded(true),
      }),
    [],
  )
  const setCaller = useCallback(
    (changed: Caller) => {
      latestCaller.current = changed
      client.forget()
      keepCaller(changed)
      setIsKeyNeeded(false)
      setIsCallerOpen(false)
      setCallerState(changed)
    },
    [client],
  )
  const setLanguage = useCallback((changed: Language) => {
    keepLanguage(changed)
    setLanguageState(changed)
  }, [])
  const t = TEXTS[language]
  const { route, query, pathname } = usePlace()
  useEffect(() => {
    document.documentElement.lang = language
  }, [language])
  useFocusOnNewPage(pathname, t.title)

  const context = { client, caller, isKeyNeeded, setCaller, language, setLanguage, t }
  return (
    <Context.Provider value={context}>
      <a class="skip" href="#content">
        {t.skipToContent}
      </a>
      <Header route={route} openCaller={() => setIsCallerOpen(!isCallerOpen)} isCallerOpen={isCallerOpen} />
      {/* another caller sees other things: the page starts anew */}
      <main id="content" tabIndex={-1} key={`${caller.key} ${caller.name}`}>
        {(isKeyNeeded || isCallerOpen) && <CallerForm />}
        {!isKeyNeeded && <Page route={route} query={query} />}
      </main>
    </Context.Provider>
  )
}

/** Another page is announced and read from its beginning, as it would be if the browser had loaded it. */
const useFocusOnNewPage = (pathname: string, title: string): void => {
  const isFirst = useRef(true)
  useLayoutEffect(() => {
    const heading = document.querySelector('h1')
    document.title = heading === null ? title : `${heading.textContent} – ${title}`
    if (!isFirst.current) document.getElementById('content')?.focus({ preventScroll: true })
    isFirst.current = false
  }, [pathname, title])
}

const Page = ({ route, query }: { route: Route; query: Query }): JSX.Element => {
  switch (route.page) {
    case 'today':
      return <TodayPage />
    case 'operations':
      return <OperationsPage query={query} />
    case 'operation':
      return <OperationPage key={route.id} id={route.id} query={query} />
    case 'item':
      return <ItemPage key={`${route.id}/${route.key}`} id={route.id} itemKey={route.key} query={query} />
    case 'replay':
      return <ReplayPage key={route.id} id={route.id} />
    case 'reconciliation':
      return <ReconciliationPage query={query} />
    case 'incidents':
      return <IncidentsPage query={query} />
    case 'incident':
      return <IncidentPage key={route.id} id={route.id} query={query} />
    case 'types':
      return <TypesPage />
    case 'workers':
      return <WorkersPage />
    case 'unknown':
      return <UnknownPage />
  }
}

const UnknownPage = (): JSX.Element => <h1>{useApp().t.pageNotFound}</h1>
