import { mount } from './cancel-button.js'

const root = document.querySelector('main')
const id = new URLSearchParams(location.search).get('operation')
if (id === null) root.querySelector('[data-part="headline"]').textContent = 'Add ?operation=op_… to the address'
else mount(root, `/operations/${encodeURIComponent(id)}`)
