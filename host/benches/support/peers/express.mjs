// A worker behind `dispatcher run --forward`: node express.mjs, prints its port.
import express from 'express';

const app = express();
app.use(express.json({ type: () => true }));
app.post('/jobs', (request, response) => {
  response.sendStatus(typeof request.body.id === 'string' ? 204 : 400);
});
const server = app.listen(0, '127.0.0.1', () => console.log(`listening ${server.address().port}`));
server.keepAliveTimeout = 60_000;
