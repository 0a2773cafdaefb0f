import { render } from 'preact'
import { App } from './app.tsx'
import './style.css'

const place = document.getElementById('app')
if (place === null) throw new Error('index.html has no #app')
render(<App />, place)
