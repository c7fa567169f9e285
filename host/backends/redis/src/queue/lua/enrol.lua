-- Registers a worker. KEYS[1] is `{prefix}`. ARGV: the worker, its label, and the seconds that it
-- lives.
redis.call('SADD', KEYS[1] .. ':workers', ARGV[1])
redis.call('SET', KEYS[1] .. ':worker:' .. ARGV[1], ARGV[2], 'EX', ARGV[3])
return 1
