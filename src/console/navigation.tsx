import type { ComponentChildren, JSX } from 'preact'
import { useLayoutEffect, useState } from 'preact/hooks'
import { parseQuery, parseRoute, type Query, type Route, urlWith } from './router.ts'

/** The browser's history as the router sees it. */
const CHANGED = 'opledger:navigated'

export interface Place {
  pathname: string
  route: Route
  query: Query
}

const currentPlace = (): Place => ({
  pathname: location.pathname,
  route: parseRoute(location.pathname),
  query: parseQuery(location.search),
})

export const usePlace = (): Place => {
  const [place, setPlace] = useState(currentPlace)
  // before a link can be pressed
  useLayoutEffect(() => {
    const read = (): void => setPlace(currentPlace())
    addEventListener('popstate', read)
    addEventListener(CHANGED, read)
    return () => {
      removeEventListener('popstate', read)
      removeEventListener(CHANGED, read)
    }
  }, [])
  return place
}

export const navigate = (url: string, { replace = false } = {}): void => {
  if (replace) history.replaceState(null, '', url)
  else history.pushState(null, '', url)
  dispatchEvent(new Event(CHANGED))
}

/** The same page with another query. */
export const changeQuery = (query: Query): void => navigate(urlWith(location.pathname, query))

interface LinkProps {
  href: string
  children: ComponentChildren
  class?: string
  'aria-current'?: 'page' | undefined
}

/** A link within the console: a plain click does not load the page anew, all else is the browser's. */
export const Link = ({ href, children, ...others }: LinkProps): JSX.Element => {
  const follow = (event: MouseEvent): void => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    navigate(href)
    scrollTo(0, 0)
  }
  return (
    <a href={href} onClick={follow} {...others}>
      {children}
    </a>
  )
}
