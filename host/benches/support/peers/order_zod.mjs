// The same handler with zod, for the peers and for the component.
import * as z from 'zod';

const Order = z.object({ id: z.string(), amount: z.number(), note: z.string().optional() });

export const handle = (body) => {
  const order = Order.parse(JSON.parse(body));
  if (order.id === 'wake') console.log(`order ${order.id}`);
};
