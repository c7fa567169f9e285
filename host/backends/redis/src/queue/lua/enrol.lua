-- Begins a worker. KEYS[1] is `{prefix}`. ARGV: the worker, what to say of it, and for how many
-- seconds it lives.
redis.call('SADD', KEYS[1] .. ':workers', ARGV[1])
redis.call('SET', KEYS[1] .. ':worker:' .. ARGV[1], ARGV[2], 'EX', ARGV[3])
return 1
