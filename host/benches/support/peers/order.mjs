// The handler of all peers in JavaScript: of a body, and of one that was parsed.
export const check = (order) => {
  if (typeof order.id !== 'string') throw new Error('`id`: wanted a string');
  if (order.id === 'wake') console.log(`order ${order.id}`);
};
export const handle = (body) => check(JSON.parse(body));
