-- What `dispatcher postgres init` runs, in one transaction. Running it again changes nothing.
-- The functions replace those of an earlier version.

CREATE SCHEMA IF NOT EXISTS dispatcher;

-- Without the extension pgmq: its schema and its list of queues, as it makes them.
CREATE SCHEMA IF NOT EXISTS pgmq;
CREATE TABLE IF NOT EXISTS pgmq.meta (
    queue_name VARCHAR UNIQUE NOT NULL,
    is_partitioned BOOLEAN NOT NULL,
    is_unlogged BOOLEAN NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL
);

-- The format of this schema, in one row.
CREATE TABLE IF NOT EXISTS dispatcher.format (version INT NOT NULL);
INSERT INTO dispatcher.format SELECT 1 WHERE NOT EXISTS (SELECT FROM dispatcher.format);

-- The pauses and limits that operators set on queues.
CREATE TABLE IF NOT EXISTS dispatcher.controls (
    queue TEXT NOT NULL,
    field TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (queue, field)
);

-- The buckets of plugins.
CREATE TABLE IF NOT EXISTS dispatcher.buckets (
    bucket TEXT NOT NULL,
    key BYTEA NOT NULL,
    value BYTEA NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (bucket, key)
);
CREATE INDEX IF NOT EXISTS buckets_by_id ON dispatcher.buckets (bucket, id);

-- The limits, permits and controls of fleets, and their processes. A record that has ended is as
-- none.
CREATE TABLE IF NOT EXISTS dispatcher.fleet_records (
    fleet TEXT NOT NULL,
    name TEXT NOT NULL,
    content TEXT NOT NULL,
    ends TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (fleet, name)
);
CREATE TABLE IF NOT EXISTS dispatcher.fleet_processes (
    fleet TEXT NOT NULL,
    process TEXT NOT NULL,
    summary TEXT NOT NULL,
    ends TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (fleet, process)
);

-- Scheduled messages, and those that could not be read. Times are in milliseconds since 1970.
CREATE TABLE IF NOT EXISTS dispatcher.jobs (
    id TEXT PRIMARY KEY,
    queue TEXT NOT NULL,
    due BIGINT NOT NULL,
    body TEXT NOT NULL,
    attributes TEXT NOT NULL,
    message_group TEXT,
    pattern TEXT,
    zone TEXT,
    token TEXT,
    until BIGINT
);
CREATE INDEX IF NOT EXISTS jobs_by_time ON dispatcher.jobs (due, id);
CREATE TABLE IF NOT EXISTS dispatcher.dead_jobs (
    id TEXT PRIMARY KEY,
    job JSONB NOT NULL,
    reason TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now()
);

-- The tables for which a process waits, and until when a send must wake it.
CREATE UNLOGGED TABLE IF NOT EXISTS dispatcher.waiting (
    queue_table TEXT PRIMARY KEY,
    until TIMESTAMP WITH TIME ZONE NOT NULL
);

-- Wakes the processes that wait for a table. Producers send no notification while none waits:
-- transactions with notifications commit one after the other, on the whole server.
CREATE OR REPLACE FUNCTION dispatcher.wake() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (
        SELECT FROM dispatcher.waiting WHERE queue_table = TG_TABLE_NAME AND until > clock_timestamp()
    ) THEN
        PERFORM pg_notify('dispatcher', TG_TABLE_NAME);
    END IF;
    RETURN NULL;
END $$;

-- Whether a queue has what this program adds to pgmq's layout.
CREATE OR REPLACE FUNCTION dispatcher.is_prepared(queue TEXT) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM pg_trigger
        WHERE tgname = 'dispatcher_wake'
        AND tgrelid = to_regclass(format('pgmq.%I', 'q_' || lower(queue)))
    )
    AND to_regclass(format('pgmq.%I', 'q_' || lower(queue) || '_group')) IS NOT NULL
    AND to_regclass(format('pgmq.%I', 'q_' || lower(queue) || '_taken')) IS NOT NULL
$$;

-- Creates a queue if it does not exist, and adds to it: indexes of its groups, the trigger that
-- wakes waiting processes, and settings of autovacuum for a table whose rows do not stay.
CREATE OR REPLACE FUNCTION dispatcher.create_queue(queue TEXT) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    q TEXT := 'q_' || lower(queue);
    a TEXT := 'a_' || lower(queue);
BEGIN
    IF queue !~ '^[A-Za-z0-9_.-]{1,47}$' THEN
        RAISE EXCEPTION 'queue name "%" is not valid; wanted 1 to 47 letters, digits, "-", "_" and ".", and no "postgres:"', queue
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('pgmq.queue_' || lower(queue)));
    IF dispatcher.is_prepared(queue) THEN
        RETURN;
    END IF;
    IF to_regclass(format('pgmq.%I', q)) IS NULL THEN
        IF to_regprocedure('pgmq.create(text)') IS NOT NULL THEN
            EXECUTE 'SELECT pgmq.create($1)' USING queue;
        ELSE
            EXECUTE format('CREATE TABLE pgmq.%I (
                msg_id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
                read_ct INT DEFAULT 0 NOT NULL,
                enqueued_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
                last_read_at TIMESTAMP WITH TIME ZONE,
                vt TIMESTAMP WITH TIME ZONE NOT NULL,
                message JSONB,
                headers JSONB)', q);
            EXECUTE format('CREATE TABLE pgmq.%I (
                msg_id BIGINT PRIMARY KEY,
                read_ct INT DEFAULT 0 NOT NULL,
                enqueued_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
                last_read_at TIMESTAMP WITH TIME ZONE,
                archived_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
                vt TIMESTAMP WITH TIME ZONE NOT NULL,
                message JSONB,
                headers JSONB)', a);
            EXECUTE format('CREATE INDEX %I ON pgmq.%I (vt)', q || '_vt_idx', q);
            EXECUTE format('CREATE INDEX %I ON pgmq.%I (archived_at)', 'archived_at_idx_' || queue, a);
            INSERT INTO pgmq.meta (queue_name, is_partitioned, is_unlogged)
                VALUES (queue, false, false) ON CONFLICT DO NOTHING;
        END IF;
    END IF;
    IF (SELECT relkind = 'p' FROM pg_class WHERE oid = format('pgmq.%I', q)::regclass) THEN
        RAISE EXCEPTION 'queue % is partitioned; wanted one that pgmq.create makes', queue
            USING ERRCODE = 'feature_not_supported';
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = format('pgmq.%I', q)::regclass AND attname = 'last_read_at'
    ) THEN
        RAISE EXCEPTION 'queue % has the layout of an old pgmq, without last_read_at; wanted pgmq 1.10 or later', queue
            USING ERRCODE = 'feature_not_supported', HINT = 'ALTER EXTENSION pgmq UPDATE';
    END IF;
    EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON pgmq.%I ((headers->>''x-pgmq-group''), msg_id)
        WHERE headers->>''x-pgmq-group'' IS NOT NULL', q || '_group', q);
    EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON pgmq.%I ((headers->>''x-pgmq-group''), vt)
        WHERE headers->>''x-pgmq-group'' IS NOT NULL AND last_read_at IS NOT NULL', q || '_taken', q);
    EXECUTE format('ALTER TABLE pgmq.%I SET (
        autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0.1)', q);
    EXECUTE format('CREATE OR REPLACE TRIGGER dispatcher_wake AFTER INSERT ON pgmq.%I
        FOR EACH STATEMENT EXECUTE FUNCTION dispatcher.wake()', q);
END $$;

-- Sends a message in the caller's transaction. Returns its id.
CREATE OR REPLACE FUNCTION dispatcher.send(
    queue TEXT,
    body JSONB,
    headers JSONB DEFAULT NULL,
    delay INTERVAL DEFAULT '0',
    message_group TEXT DEFAULT NULL
) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id BIGINT;
BEGIN
    IF body IS NULL THEN
        RAISE EXCEPTION 'the body of a message for queue % is NULL', queue
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF jsonb_typeof(headers) <> 'object' THEN
        RAISE EXCEPTION 'the headers of a message for queue % are no JSON object', queue
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF message_group IS NOT NULL THEN
        headers := coalesce(headers, '{}') || jsonb_build_object('x-pgmq-group', message_group);
    END IF;
    IF to_regclass(format('pgmq.%I', 'q_' || lower(queue))) IS NULL THEN
        RAISE EXCEPTION 'queue % does not exist', queue
            USING ERRCODE = 'undefined_table',
            HINT = 'Start a process that receives from it, or let the owner run SELECT dispatcher.create_queue(''NAME'').';
    END IF;
    EXECUTE format('INSERT INTO pgmq.%I (vt, message, headers)
        VALUES (clock_timestamp() + $1, $2, $3) RETURNING msg_id', 'q_' || lower(queue))
        INTO id USING delay, body, headers;
    RETURN id;
END $$;

-- Sends a text: a JSON object or array as such, any other text as a JSON string.
CREATE OR REPLACE FUNCTION dispatcher.send(
    queue TEXT,
    body TEXT,
    headers JSONB DEFAULT NULL,
    delay INTERVAL DEFAULT '0',
    message_group TEXT DEFAULT NULL
) RETURNS BIGINT
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    content JSONB := to_jsonb(body);
BEGIN
    IF body ~ '^\s*[\[{]' THEN
        BEGIN
            content := body::jsonb;
        EXCEPTION WHEN invalid_text_representation OR numeric_value_out_of_range THEN
            NULL;
        END;
    END IF;
    RETURN dispatcher.send(queue, content, headers, delay, message_group);
END $$;

-- Queues that exist already. One that cannot be prepared holds up no other; its first use says why.
DO $$
DECLARE
    queue TEXT;
BEGIN
    FOR queue IN SELECT queue_name FROM pgmq.meta LOOP
        BEGIN
            PERFORM dispatcher.create_queue(queue);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'queue % is not prepared: %', queue, SQLERRM;
        END;
    END LOOP;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dispatcher FROM PUBLIC;
