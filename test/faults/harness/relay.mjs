// Listens at one address and leads to another: node relay.mjs HOST PORT TO_HOST TO_PORT. Prints one line when it listens.
import net from 'node:net'

const [host, port, toHost, toPort] = process.argv.slice(2)

const server = net.createServer((client) => {
  const upstream = net.connect(Number(toPort), toHost)
  const cut = () => {
    client.destroy()
    upstream.destroy()
  }
  for (const socket of [client, upstream]) {
    socket.setNoDelay(true)
    socket.on('error', cut)
    socket.on('close', cut)
  }
  client.pipe(upstream)
  upstream.pipe(client)
})
server.listen(Number(port), host, () => console.log('relay listens'))
