// The handler of all peers in JavaScript.
export const handle = (body) => {
  const order = JSON.parse(body);
  if (typeof order.id !== 'string') throw new Error('`id`: wanted a string');
  if (order.id === 'wake') console.log(`order ${order.id}`);
};
