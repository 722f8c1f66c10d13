--
-- PostgreSQL database dump
--



SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: kpipe_store; Type: SCHEMA; Schema: -; Owner: loader
--

CREATE SCHEMA kpipe_store;


ALTER SCHEMA kpipe_store OWNER TO loader;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: kpipe_batches; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.kpipe_batches (
    database_name character varying,
    pipeline_name character varying,
    batch_id character varying,
    batch_state character varying,
    batch_rows_written bigint,
    batch_time double precision,
    batch_start_unix_timestamp double precision,
    batch_partition_state character varying,
    batch_partition_parsed_rows bigint,
    batch_source_partition_id integer,
    batch_earliest_offset bigint,
    batch_latest_offset bigint,
    batch_partition_time double precision,
    batch_partition_extracted_bytes bigint,
    batch_partition_extracted_rows bigint,
    cluster_id character varying,
    topic_id character varying,
    topic character varying,
    target_table character varying,
    seq bigint,
    closed_by character varying,
    messages bigint,
    rows bigint,
    dead_letters bigint,
    filtered bigint,
    gaps bigint,
    given bigint,
    set_aside_before bigint,
    bytes bigint,
    deletes bigint,
    inserted bigint,
    updated bigint,
    deleted bigint,
    ignored bigint
);


ALTER TABLE kpipe_store.kpipe_batches OWNER TO loader;

--
-- Name: kpipe_commits; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.kpipe_commits (
    batch_id character varying NOT NULL,
    pipeline_name character varying,
    seq bigint,
    kind character varying,
    target_table character varying,
    run_id character varying,
    version character varying,
    started timestamp with time zone,
    committed timestamp with time zone,
    seconds double precision,
    messages bigint,
    rows bigint,
    dead_letters bigint,
    filtered bigint,
    gaps bigint,
    given bigint,
    set_aside_before bigint,
    bytes bigint,
    deletes bigint,
    inserted bigint,
    updated bigint,
    deleted bigint,
    ignored bigint,
    note character varying,
    metadata character varying,
    published_at timestamp with time zone
);


ALTER TABLE kpipe_store.kpipe_commits OWNER TO loader;

--
-- Name: kpipe_batches_summary; Type: VIEW; Schema: kpipe_store; Owner: loader
--

CREATE VIEW kpipe_store.kpipe_batches_summary AS
 SELECT min((b.database_name)::text) AS database_name,
    b.pipeline_name,
    b.batch_id,
    min((b.batch_state)::text) AS batch_state,
    to_timestamp(min(b.batch_start_unix_timestamp)) AS start_time,
    max(b.batch_time) AS batch_time,
    ((sum(b.batch_partition_extracted_rows))::double precision / NULLIF(max(b.batch_time), (0)::double precision)) AS rows_per_sec,
    (sum(b.batch_partition_extracted_rows))::bigint AS rows_streamed,
    count(DISTINCT concat(b.topic, '/', b.batch_source_partition_id)) AS num_partitions,
    count(DISTINCT
        CASE
            WHEN ((b.batch_partition_state)::text = 'Succeeded'::text) THEN concat(b.topic, '/', b.batch_source_partition_id)
            ELSE NULL::text
        END) AS num_partitions_finished,
    (sum(b.batch_partition_extracted_bytes) / '1000000'::numeric) AS mb_streamed,
    (((sum(b.batch_partition_extracted_bytes) / '1000000'::numeric))::double precision / NULLIF(max(b.batch_time), (0)::double precision)) AS mb_per_sec,
    (sum(b.inserted))::bigint AS rows_inserted,
    (sum(b.updated))::bigint AS rows_updated,
    (sum(b.deleted))::bigint AS rows_deleted,
    min(b.seq) AS seq,
    (sum(b.dead_letters))::bigint AS dead_letters,
    (sum(b.filtered))::bigint AS filtered,
    (sum(b.gaps))::bigint AS gaps,
    min(c.committed) AS committed,
    (sum(b.ignored))::bigint AS rows_ignored
   FROM (kpipe_store.kpipe_batches b
     LEFT JOIN kpipe_store.kpipe_commits c ON (((c.batch_id)::text = (b.batch_id)::text)))
  GROUP BY b.pipeline_name, b.batch_id;


ALTER TABLE kpipe_store.kpipe_batches_summary OWNER TO loader;

--
-- Name: kpipe_ledger; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.kpipe_ledger (
    pipeline_name character varying NOT NULL,
    cluster_id character varying NOT NULL,
    topic_id character varying NOT NULL,
    topic character varying NOT NULL,
    partition integer NOT NULL,
    lane_start bigint NOT NULL,
    next_offset bigint,
    lane_end bigint,
    kind character varying,
    batch_id character varying,
    tail character varying
);


ALTER TABLE kpipe_store.kpipe_ledger OWNER TO loader;

--
-- Name: kpipe_partitions; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.kpipe_partitions (
    pipeline_name character varying NOT NULL,
    cluster_id character varying NOT NULL,
    topic_id character varying NOT NULL,
    topic character varying NOT NULL,
    partition integer NOT NULL,
    earliest_offset bigint,
    latest_offset bigint,
    updated_unix_timestamp double precision
);


ALTER TABLE kpipe_store.kpipe_partitions OWNER TO loader;

--
-- Name: kpipe_pipelines; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.kpipe_pipelines (
    database_name character varying,
    pipeline_name character varying NOT NULL,
    pipeline_id character varying,
    config_json character varying,
    state character varying,
    skipped_batches bigint,
    seq bigint,
    seal bigint,
    target_table character varying,
    rows bigint,
    dead_letters bigint,
    error_events bigint,
    last_batch_id character varying,
    last_error character varying,
    created timestamp with time zone,
    updated timestamp with time zone
);


ALTER TABLE kpipe_store.kpipe_pipelines OWNER TO loader;

--
-- Name: kpipe_cursors; Type: VIEW; Schema: kpipe_store; Owner: loader
--

CREATE VIEW kpipe_store.kpipe_cursors AS
 SELECT p.database_name,
    p.pipeline_name,
    'KAFKA'::text AS source_type,
    l.partition AS source_partition_id,
    COALESCE(min(k.earliest_offset), min(l.lane_start)) AS earliest_offset,
    COALESCE(min(k.latest_offset), max(
        CASE
            WHEN ((l.kind)::text = 'read'::text) THEN l.next_offset
            ELSE NULL::bigint
        END)) AS latest_offset,
    max(
        CASE
            WHEN ((l.kind)::text = 'read'::text) THEN l.next_offset
            ELSE NULL::bigint
        END) AS cursor_offset,
    COALESCE(min(
        CASE
            WHEN ((l.kind)::text <> 'read'::text) THEN l.lane_start
            WHEN ((l.lane_end IS NULL) OR (l.next_offset < l.lane_end)) THEN l.next_offset
            ELSE NULL::bigint
        END), max(l.next_offset)) AS successful_cursor_offset,
    COALESCE(min(k.updated_unix_timestamp), (EXTRACT(epoch FROM min(p.updated)))::double precision) AS updated_unix_timestamp,
    l.topic,
    l.cluster_id,
    l.topic_id
   FROM ((kpipe_store.kpipe_ledger l
     JOIN kpipe_store.kpipe_pipelines p ON (((p.pipeline_name)::text = (l.pipeline_name)::text)))
     LEFT JOIN kpipe_store.kpipe_partitions k ON ((((k.pipeline_name)::text = (l.pipeline_name)::text) AND ((k.cluster_id)::text = (l.cluster_id)::text) AND ((k.topic_id)::text = (l.topic_id)::text) AND ((k.topic)::text = (l.topic)::text) AND (k.partition = l.partition))))
  GROUP BY p.database_name, p.pipeline_name, l.cluster_id, l.topic_id, l.topic, l.partition;


ALTER TABLE kpipe_store.kpipe_cursors OWNER TO loader;

--
-- Name: kpipe_errors; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.kpipe_errors (
    database_name character varying,
    pipeline_name character varying,
    error_unix_timestamp double precision,
    error_type character varying,
    error_code character varying,
    error_message character varying,
    error_kind character varying,
    std_error character varying,
    load_data_line bytea,
    load_data_line_number bigint,
    batch_id character varying,
    error_id bigint,
    batch_source_partition_id integer,
    batch_earliest_offset bigint,
    batch_latest_offset bigint,
    dead_letter boolean,
    stage character varying,
    topic character varying,
    partition integer,
    "offset" bigint,
    kafka_timestamp timestamp with time zone,
    key bytea,
    headers json,
    version character varying
);


ALTER TABLE kpipe_store.kpipe_errors OWNER TO loader;

--
-- Name: kpipe_format; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.kpipe_format (
    name character varying NOT NULL,
    version integer
);


ALTER TABLE kpipe_store.kpipe_format OWNER TO loader;

--
-- Name: kpipe_holdings; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.kpipe_holdings (
    target_table character varying NOT NULL,
    topic character varying NOT NULL,
    partition integer NOT NULL,
    rows bigint,
    offsets numeric(38,0),
    baseline bigint
);


ALTER TABLE kpipe_store.kpipe_holdings OWNER TO loader;

--
-- Name: kpipe_targets; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.kpipe_targets (
    pipeline_name character varying,
    batch_id character varying NOT NULL,
    seq bigint,
    cluster_id character varying NOT NULL,
    topic_id character varying NOT NULL,
    topic character varying NOT NULL,
    batch_source_partition_id integer NOT NULL,
    batch_earliest_offset bigint NOT NULL,
    batch_latest_offset bigint,
    closed_by character varying,
    batch_state character varying,
    target_table character varying NOT NULL,
    rows bigint,
    records bigint,
    offsets numeric(38,0),
    inserted bigint,
    updated bigint,
    deleted bigint,
    ignored bigint
);


ALTER TABLE kpipe_store.kpipe_targets OWNER TO loader;

--
-- Name: order_lines; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.order_lines (
    id bigint,
    number bigint,
    sku text,
    quantity integer,
    discount integer,
    _kafka_partition integer,
    _kafka_offset bigint,
    _kafka_timestamp timestamp with time zone
);


ALTER TABLE kpipe_store.order_lines OWNER TO loader;

--
-- Name: orders; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.orders (
    id bigint,
    customer text,
    _kafka_partition integer,
    _kafka_offset bigint,
    _kafka_timestamp timestamp with time zone
);


ALTER TABLE kpipe_store.orders OWNER TO loader;

--
-- Name: other; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.other (
    id bigint,
    text text,
    amount numeric(18,3),
    "order" text,
    "naïve" text,
    doc jsonb,
    _kafka_partition integer,
    _kafka_offset bigint,
    _kafka_timestamp timestamp with time zone
);


ALTER TABLE kpipe_store.other OWNER TO loader;

--
-- Name: tweets; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.tweets (
    id bigint,
    text text,
    amount numeric(18,3),
    "order" text,
    "naïve" text,
    doc jsonb,
    _kafka_partition integer,
    _kafka_offset bigint,
    _kafka_timestamp timestamp with time zone
);


ALTER TABLE kpipe_store.tweets OWNER TO loader;

--
-- Name: users; Type: TABLE; Schema: kpipe_store; Owner: loader
--

CREATE TABLE kpipe_store.users (
    id bigint,
    text text,
    n bigint,
    _kafka_partition integer,
    _kafka_offset bigint,
    _kafka_timestamp timestamp with time zone
);


ALTER TABLE kpipe_store.users OWNER TO loader;

--
-- Data for Name: kpipe_batches; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'tweets', 'tweets-0.6-1.3', 'Succeeded', 5, 0.5, 1700000000.123, 'Succeeded', 5, 0, 0, 6, 0, 50, 6, 'cluster-1', 'topic-id-1', 'tweets', 'tweets', 2, 'caught_up', 6, 5, 1, 0, 0, 0, 0, 50, 0, 5, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'tweets', 'tweets-0.6-1.3', 'Succeeded', 1, 0.5, 1700000000.123, 'Succeeded', 1, 1, 0, 3, 0, 10, 2, 'cluster-1', 'topic-id-1', 'tweets', 'tweets', 2, 'caught_up', 2, 1, 1, 0, 1, 0, 0, 10, 0, 1, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'tweets', 'tweets-0.9', 'Succeeded', 3, 0.5, 1700000000.123, 'Succeeded', 3, 0, 6, 9, 0, 30, 3, 'cluster-1', 'topic-id-1', 'tweets', 'tweets', 3, 'caught_up', 3, 3, 0, 0, 0, 0, 0, 30, 0, 3, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'other', 'other-0.6-1.3', 'Succeeded', 5, 0.5, 1700000000.123, 'Succeeded', 5, 0, 0, 6, 0, 50, 6, 'cluster-1', 'topic-id-1', 'tweets', 'other', 2, 'caught_up', 6, 5, 1, 0, 0, 0, 0, 50, 0, 5, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'other', 'other-0.6-1.3', 'Succeeded', 1, 0.5, 1700000000.123, 'Succeeded', 1, 1, 0, 3, 0, 10, 2, 'cluster-1', 'topic-id-1', 'tweets', 'other', 2, 'caught_up', 2, 1, 1, 0, 1, 0, 0, 10, 0, 1, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'other', 'other-0.9', 'Succeeded', 3, 0.5, 1700000000.123, 'Succeeded', 3, 0, 6, 9, 0, 30, 3, 'cluster-1', 'topic-id-1', 'tweets', 'other', 3, 'caught_up', 3, 3, 0, 0, 0, 0, 0, 30, 0, 3, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'users', '3d85f20123f94bd18eb7b5542c312ba4', 'Succeeded', 2, 0.5, 1700000000.123, 'Succeeded', 2, 0, 0, 2, 0, 2, 2, 'cluster-1', 'topic-id-1', 'tweets', 'users', 2, 'caught_up', 2, 2, 0, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'users', '3d85f20123f94bd18eb7b5542c312ba4', 'Succeeded', 1, 0.5, 1700000000.123, 'Succeeded', 1, 1, 0, 1, 0, 1, 1, 'cluster-1', 'topic-id-1', 'tweets', 'users', 2, 'caught_up', 1, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'users', 'd536cb37be76426391f2b379473203c7', 'Succeeded', 2, 0.5, 1700000000.123, 'Succeeded', 1, 0, 2, 4, 0, 2, 2, 'cluster-1', 'topic-id-1', 'tweets', 'users', 3, 'caught_up', 2, 1, 0, 0, 0, 0, 0, 2, 1, 0, 1, 1, 0);
INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'shop', '3a5c747005bff07bc88a13de45a7c1f6', 'Succeeded', 1, 0.6965405149994695, 1795693104.515, 'Succeeded', 1, 0, 0, 2, 0.12594156800059864, 138, 2, 'cluster-1', 'topic-1', 'orders', 'orders', 2, 'caught_up', 2, 1, 0, 1, 0, 1, 0, 138, 0, 1, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_batches VALUES ('postgres', 'shop', '3a5c747005bff07bc88a13de45a7c1f6', 'Succeeded', 1, 0.6965405149994695, 1795693104.515, 'Succeeded', 1, 1, 0, 1, 0.11288811799931864, 86, 1, 'cluster-1', 'topic-1', 'orders', 'orders', 2, 'caught_up', 1, 1, 0, 0, 0, 1, 0, 86, 0, 1, 0, 0, 0);


--
-- Data for Name: kpipe_commits; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.kpipe_commits VALUES ('tweets-begin', 'tweets', 1, 'begin', 'tweets', '', '', '1970-01-01 00:00:00+00', '2026-11-26 11:38:22.083901+00', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'begin', NULL, NULL);
INSERT INTO kpipe_store.kpipe_commits VALUES ('tweets-0.9', 'tweets', 3, 'batch', 'tweets', 'run-1', 'v1', '2023-11-14 22:13:20.123+00', '2026-11-26 11:38:22.426326+00', 0.5, 3, 3, 0, 0, 0, 0, 0, 30, 0, 3, 0, 0, 0, 'it''s a note', '{"0": {"end_offset": 9, "rows": 3}}', NULL);
INSERT INTO kpipe_store.kpipe_commits VALUES ('tweets-0.6-1.3', 'tweets', 2, 'batch', 'tweets', 'run-1', 'v1', '2023-11-14 22:13:20.123+00', '2026-11-26 11:38:22.327282+00', 0.5, 8, 6, 2, 0, 1, 0, 0, 60, 0, 6, 0, 0, 0, 'it''s a note', '{"0": {"end_offset": 6, "rows": 5}, "1": {"end_offset": 3, "rows": 1}}', '2026-11-26 11:38:22.52992+00');
INSERT INTO kpipe_store.kpipe_commits VALUES ('other-begin', 'other', 1, 'begin', 'other', '', '', '1970-01-01 00:00:00+00', '2026-11-26 11:38:22.607241+00', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'begin', NULL, NULL);
INSERT INTO kpipe_store.kpipe_commits VALUES ('other-0.9', 'other', 3, 'batch', 'other', 'run-1', 'v1', '2023-11-14 22:13:20.123+00', '2026-11-26 11:38:23.015478+00', 0.5, 3, 3, 0, 0, 0, 0, 0, 30, 0, 3, 0, 0, 0, 'it''s a note', '{"0": {"end_offset": 9, "rows": 3}}', NULL);
INSERT INTO kpipe_store.kpipe_commits VALUES ('other-0.6-1.3', 'other', 2, 'batch', 'other', 'run-1', 'v1', '2023-11-14 22:13:20.123+00', '2026-11-26 11:38:22.916679+00', 0.5, 8, 6, 2, 0, 1, 0, 0, 60, 0, 6, 0, 0, 0, 'it''s a note', '{"0": {"end_offset": 6, "rows": 5}, "1": {"end_offset": 3, "rows": 1}}', '2026-11-26 11:38:23.106397+00');
INSERT INTO kpipe_store.kpipe_commits VALUES ('ee037be2ce7841ae95ad23bba85a7297', 'users', 1, 'begin', 'users', '', '', '1970-01-01 00:00:00+00', '2026-11-26 11:38:23.133509+00', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'begin', NULL, NULL);
INSERT INTO kpipe_store.kpipe_commits VALUES ('3d85f20123f94bd18eb7b5542c312ba4', 'users', 2, 'batch', 'users', '', '', '2023-11-14 22:13:20.123+00', '2026-11-26 11:38:23.293976+00', 0.5, 3, 3, 0, 0, 0, 0, 0, 3, 0, 3, 0, 0, 0, '', '{"0": {"rows": 2, "inserted": 2, "updated": 0}, "1": {"rows": 1, "inserted": 1, "updated": 0}}', NULL);
INSERT INTO kpipe_store.kpipe_commits VALUES ('d536cb37be76426391f2b379473203c7', 'users', 3, 'batch', 'users', '', '', '2023-11-14 22:13:20.123+00', '2026-11-26 11:38:23.439531+00', 0.5, 2, 1, 0, 0, 0, 0, 0, 2, 1, 0, 1, 1, 0, '', '{"0": {"rows": 1, "inserted": 0, "updated": 1}}', NULL);
INSERT INTO kpipe_store.kpipe_commits VALUES ('83f40cb8a7c14c688134090a7539bdec', 'shop', 1, 'begin', 'orders', '', '', '2026-11-26 11:38:24.536+00', '2026-11-26 11:38:24.561769+00', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'begin: orders/0 at 0, orders/1 at 0', NULL, NULL);
INSERT INTO kpipe_store.kpipe_commits VALUES ('3a5c747005bff07bc88a13de45a7c1f6', 'shop', 2, 'batch', 'orders', '', '', '2026-11-26 11:38:24.515+00', '2026-11-26 11:38:25.301707+00', 0.6965405149994695, 3, 2, 0, 1, 0, 2, 0, 224, 0, 2, 0, 0, 0, '', '{"0": {"batch": "3a5c747005bff07bc88a13de45a7c1f6", "start_offset": 0, "end_offset": 2, "messages": 2, "rows": 1, "inserted": 1, "updated": 0, "deleted": 0, "ignored": 0, "dead_letters": 0, "filtered": 1, "gaps": 0, "bytes": 138, "lag": 0, "rows_per_second": 1.4, "core_seconds": 0.125942, "targets": {"order_lines": {"rows": 2, "inserted": 2, "updated": 0, "deleted": 0, "ignored": 0}}}, "1": {"batch": "3a5c747005bff07bc88a13de45a7c1f6", "start_offset": 0, "end_offset": 1, "messages": 1, "rows": 1, "inserted": 1, "updated": 0, "deleted": 0, "ignored": 0, "dead_letters": 0, "filtered": 0, "gaps": 0, "bytes": 86, "lag": 0, "rows_per_second": 1.4, "core_seconds": 0.112888, "targets": {"order_lines": {"rows": 1, "inserted": 1, "updated": 0, "deleted": 0, "ignored": 0}}}}', NULL);


--
-- Data for Name: kpipe_errors; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.kpipe_errors VALUES ('postgres', 'tweets', 1795693102.3241706, 'Warning', 'RecordRejected', 'not JSON: ''; DROP TABLE tweets; --', 'External', NULL, '\x7bff273b202d2d', NULL, 'tweets-0.6-1.3', 1, 0, 0, 6, true, 'parse', 'tweets', 0, 2, '2023-11-14 22:13:20+00', '\x6b', '[{"name":"h","value":"AA=="}]', 'v1');
INSERT INTO kpipe_store.kpipe_errors VALUES ('postgres', 'tweets', 1795693102.3241706, 'Warning', 'RecordRejected', 'not JSON: ''; DROP TABLE tweets; --', 'External', NULL, '\x7bff273b202d2d', NULL, 'tweets-0.6-1.3', 2, 1, 0, 3, true, 'parse', 'tweets', 1, 0, '2023-11-14 22:13:20+00', '\x6b', '[{"name":"h","value":"AA=="}]', 'v1');
INSERT INTO kpipe_store.kpipe_errors VALUES ('postgres', 'tweets', 1795693102.5775747, 'Error', 'RecordRejected', 'stopped: it''s   broken', 'External', NULL, NULL, NULL, NULL, 3, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO kpipe_store.kpipe_errors VALUES ('postgres', 'other', 1795693102.9127886, 'Warning', 'RecordRejected', 'not JSON: ''; DROP TABLE tweets; --', 'External', NULL, '\x7bff273b202d2d', NULL, 'other-0.6-1.3', 1, 0, 0, 6, true, 'parse', 'tweets', 0, 2, '2023-11-14 22:13:20+00', '\x6b', '[{"name":"h","value":"AA=="}]', 'v1');
INSERT INTO kpipe_store.kpipe_errors VALUES ('postgres', 'other', 1795693102.9127886, 'Warning', 'RecordRejected', 'not JSON: ''; DROP TABLE tweets; --', 'External', NULL, '\x7bff273b202d2d', NULL, 'other-0.6-1.3', 2, 1, 0, 3, true, 'parse', 'tweets', 1, 0, '2023-11-14 22:13:20+00', '\x6b', '[{"name":"h","value":"AA=="}]', 'v1');
INSERT INTO kpipe_store.kpipe_errors VALUES ('postgres', 'other', 1795693103.1095574, 'Error', 'RecordRejected', 'stopped: it''s   broken', 'External', NULL, NULL, NULL, NULL, 3, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);


--
-- Data for Name: kpipe_format; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.kpipe_format VALUES ('ledger', 2);


--
-- Data for Name: kpipe_holdings; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.kpipe_holdings VALUES ('users', '', -1, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_holdings VALUES ('users', '', 1, 1, 0, 0);
INSERT INTO kpipe_store.kpipe_holdings VALUES ('users', '', 0, 1, 2, 0);


--
-- Data for Name: kpipe_ledger; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.kpipe_ledger VALUES ('tweets', 'cluster-1', 'topic-id-1', 'tweets', 1, 0, 3, NULL, 'read', 'tweets-0.6-1.3', '3 - 0:00000000 1:00000001 2:00000002');
INSERT INTO kpipe_store.kpipe_ledger VALUES ('tweets', 'cluster-1', 'topic-id-1', 'tweets', 0, 0, 9, NULL, 'read', 'tweets-0.9', '3 - 6:00000006 7:00000007 8:00000008');
INSERT INTO kpipe_store.kpipe_ledger VALUES ('other', 'cluster-1', 'topic-id-1', 'tweets', 1, 0, 3, NULL, 'read', 'other-0.6-1.3', '3 - 0:00000000 1:00000001 2:00000002');
INSERT INTO kpipe_store.kpipe_ledger VALUES ('other', 'cluster-1', 'topic-id-1', 'tweets', 0, 0, 9, NULL, 'read', 'other-0.9', '3 - 6:00000006 7:00000007 8:00000008');
INSERT INTO kpipe_store.kpipe_ledger VALUES ('users', 'cluster-1', 'topic-id-1', 'tweets', 1, 0, 1, NULL, 'read', '3d85f20123f94bd18eb7b5542c312ba4', NULL);
INSERT INTO kpipe_store.kpipe_ledger VALUES ('users', 'cluster-1', 'topic-id-1', 'tweets', 0, 0, 4, NULL, 'read', 'd536cb37be76426391f2b379473203c7', NULL);
INSERT INTO kpipe_store.kpipe_ledger VALUES ('shop', 'cluster-1', 'topic-1', 'orders', 0, 0, 2, NULL, 'read', '3a5c747005bff07bc88a13de45a7c1f6', NULL);
INSERT INTO kpipe_store.kpipe_ledger VALUES ('shop', 'cluster-1', 'topic-1', 'orders', 1, 0, 1, NULL, 'read', '3a5c747005bff07bc88a13de45a7c1f6', NULL);


--
-- Data for Name: kpipe_partitions; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.kpipe_partitions VALUES ('tweets', 'cluster-1', 'topic-id-1', 'tweets', 1, 0, 10, 1795693102.3345616);
INSERT INTO kpipe_store.kpipe_partitions VALUES ('tweets', 'cluster-1', 'topic-id-1', 'tweets', 0, 0, 16, 1795693102.437184);
INSERT INTO kpipe_store.kpipe_partitions VALUES ('other', 'cluster-1', 'topic-id-1', 'tweets', 1, 0, 10, 1795693102.9307153);
INSERT INTO kpipe_store.kpipe_partitions VALUES ('other', 'cluster-1', 'topic-id-1', 'tweets', 0, 0, 16, 1795693103.0177495);
INSERT INTO kpipe_store.kpipe_partitions VALUES ('users', 'cluster-1', 'topic-id-1', 'tweets', 1, 0, 1, 1795693103.2965147);
INSERT INTO kpipe_store.kpipe_partitions VALUES ('users', 'cluster-1', 'topic-id-1', 'tweets', 0, 0, 4, 1795693103.4440827);
INSERT INTO kpipe_store.kpipe_partitions VALUES ('shop', 'cluster-1', 'topic-1', 'orders', 0, 0, 2, 1795693105.3154178);
INSERT INTO kpipe_store.kpipe_partitions VALUES ('shop', 'cluster-1', 'topic-1', 'orders', 1, 0, 1, 1795693105.3154204);


--
-- Data for Name: kpipe_pipelines; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.kpipe_pipelines VALUES ('postgres', 'tweets', '26e77cb9-2829-4fe0-acc1-9d6dc3705f01', '{"source_type": "KAFKA"}', 'error', 0, 3, 593662045541051923, 'tweets', 9, 2, 3, 'tweets-0.9', 'stopped: it''s   broken', '2026-11-26 11:38:22.077857+00', '2026-11-26 11:38:22.552018+00');
INSERT INTO kpipe_store.kpipe_pipelines VALUES ('postgres', 'other', '84ac4cfb-39a4-4117-850a-792f53d3d19c', '{"source_type": "KAFKA"}', 'error', 0, 3, 593662045541051923, 'other', 9, 2, 3, 'other-0.9', 'stopped: it''s   broken', '2026-11-26 11:38:22.605493+00', '2026-11-26 11:38:23.108725+00');
INSERT INTO kpipe_store.kpipe_pipelines VALUES ('postgres', 'users', '91290df6-f599-4f28-90f4-d8e745c62286', '{"source_type": "KAFKA"}', 'running', 0, 3, 1389991580580654321, 'users', 2, 0, 0, 'd536cb37be76426391f2b379473203c7', NULL, '2026-11-26 11:38:23.130868+00', '2026-11-26 11:38:23.391693+00');
INSERT INTO kpipe_store.kpipe_pipelines VALUES ('postgres', 'shop', '62f9ad29-3f1f-430e-88ec-552054868071', '{}', 'running', 0, 2, 5255242911885630202, 'orders', 2, 0, 0, '3a5c747005bff07bc88a13de45a7c1f6', NULL, '2026-11-26 11:38:24.550465+00', '2026-11-26 11:38:25.243512+00');


--
-- Data for Name: kpipe_targets; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.kpipe_targets VALUES ('shop', '3a5c747005bff07bc88a13de45a7c1f6', 2, 'cluster-1', 'topic-1', 'orders', 0, 0, 2, 'caught_up', 'Succeeded', 'orders', 1, 1, 0, 1, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_targets VALUES ('shop', '3a5c747005bff07bc88a13de45a7c1f6', 2, 'cluster-1', 'topic-1', 'orders', 0, 0, 2, 'caught_up', 'Succeeded', 'order_lines', 2, 1, 0, 2, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_targets VALUES ('shop', '3a5c747005bff07bc88a13de45a7c1f6', 2, 'cluster-1', 'topic-1', 'orders', 1, 0, 1, 'caught_up', 'Succeeded', 'orders', 1, 1, 0, 1, 0, 0, 0);
INSERT INTO kpipe_store.kpipe_targets VALUES ('shop', '3a5c747005bff07bc88a13de45a7c1f6', 2, 'cluster-1', 'topic-1', 'orders', 1, 0, 1, 'caught_up', 'Succeeded', 'order_lines', 1, 1, 0, 1, 0, 0, 0);


--
-- Data for Name: order_lines; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.order_lines VALUES (1, 1, 's0', 5, NULL, 0, 0, '2023-11-14 22:13:20+00');
INSERT INTO kpipe_store.order_lines VALUES (1, 2, 's1', 6, NULL, 0, 0, '2023-11-14 22:13:20+00');
INSERT INTO kpipe_store.order_lines VALUES (2, 1, 's0', 7, NULL, 1, 0, '2023-11-14 22:13:20+00');


--
-- Data for Name: orders; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.orders VALUES (1, 'it''s 1', 0, 0, '2023-11-14 22:13:20+00');
INSERT INTO kpipe_store.orders VALUES (2, 'c2', 1, 0, '2023-11-14 22:13:20+00');


--
-- Data for Name: other; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.other VALUES (0, '''; DROP TABLE tweets; --', -0.375, 'select 0', '''; DROP TABLE tweets; --', '{"k": [0, "''; DROP TABLE tweets; --"]}', 0, 0, '1970-01-01 00:00:00+00');
INSERT INTO kpipe_store.other VALUES (1, 'a "quote", a \ and	two
lines', -0.250, 'select 1', 'a "quote", a \ and	two
lines', '{"k": [1, "a \"quote\", a \\ and\ttwo\nlines"]}', 0, 1, '1970-01-01 00:00:01+00');
INSERT INTO kpipe_store.other VALUES (3, '$1 %s {} {{ x }} ?', 0.000, 'select 3', '$1 %s {} {{ x }} ?', '{"k": [3, "$1 %s {} {{ x }} ?"]}', 0, 3, '1970-01-01 00:00:03+00');
INSERT INTO kpipe_store.other VALUES (4, '', 0.125, 'select 4', '', '{"k": [4, ""]}', 0, 4, '1970-01-01 00:00:04+00');
INSERT INTO kpipe_store.other VALUES (5, NULL, 0.250, 'select 5', NULL, '{"k": [5, null]}', 0, 5, '1970-01-01 00:00:05+00');
INSERT INTO kpipe_store.other VALUES (1002, '$1 %s {} {{ x }} ?', -0.125, 'select 2', '$1 %s {} {{ x }} ?', '{"k": [2, "$1 %s {} {{ x }} ?"]}', 1, 2, '1970-01-01 00:00:02+00');
INSERT INTO kpipe_store.other VALUES (6, 'NULL', 0.375, 'select 6', 'NULL', '{"k": [6, "NULL"]}', 0, 6, '1970-01-01 00:00:06+00');
INSERT INTO kpipe_store.other VALUES (7, '../../etc/passwd', 0.500, 'select 7', '../../etc/passwd', '{"k": [7, "../../etc/passwd"]}', 0, 7, '1970-01-01 00:00:07+00');
INSERT INTO kpipe_store.other VALUES (8, '''; DROP TABLE tweets; --', 0.625, 'select 8', '''; DROP TABLE tweets; --', '{"k": [8, "''; DROP TABLE tweets; --"]}', 0, 8, '1970-01-01 00:00:08+00');


--
-- Data for Name: tweets; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.tweets VALUES (0, '''; DROP TABLE tweets; --', -0.375, 'select 0', '''; DROP TABLE tweets; --', '{"k": [0, "''; DROP TABLE tweets; --"]}', 0, 0, '1970-01-01 00:00:00+00');
INSERT INTO kpipe_store.tweets VALUES (1, 'a "quote", a \ and	two
lines', -0.250, 'select 1', 'a "quote", a \ and	two
lines', '{"k": [1, "a \"quote\", a \\ and\ttwo\nlines"]}', 0, 1, '1970-01-01 00:00:01+00');
INSERT INTO kpipe_store.tweets VALUES (3, '$1 %s {} {{ x }} ?', 0.000, 'select 3', '$1 %s {} {{ x }} ?', '{"k": [3, "$1 %s {} {{ x }} ?"]}', 0, 3, '1970-01-01 00:00:03+00');
INSERT INTO kpipe_store.tweets VALUES (4, '', 0.125, 'select 4', '', '{"k": [4, ""]}', 0, 4, '1970-01-01 00:00:04+00');
INSERT INTO kpipe_store.tweets VALUES (5, NULL, 0.250, 'select 5', NULL, '{"k": [5, null]}', 0, 5, '1970-01-01 00:00:05+00');
INSERT INTO kpipe_store.tweets VALUES (1002, '$1 %s {} {{ x }} ?', -0.125, 'select 2', '$1 %s {} {{ x }} ?', '{"k": [2, "$1 %s {} {{ x }} ?"]}', 1, 2, '1970-01-01 00:00:02+00');
INSERT INTO kpipe_store.tweets VALUES (6, 'NULL', 0.375, 'select 6', 'NULL', '{"k": [6, "NULL"]}', 0, 6, '1970-01-01 00:00:06+00');
INSERT INTO kpipe_store.tweets VALUES (7, '../../etc/passwd', 0.500, 'select 7', '../../etc/passwd', '{"k": [7, "../../etc/passwd"]}', 0, 7, '1970-01-01 00:00:07+00');
INSERT INTO kpipe_store.tweets VALUES (8, '''; DROP TABLE tweets; --', 0.625, 'select 8', '''; DROP TABLE tweets; --', '{"k": [8, "''; DROP TABLE tweets; --"]}', 0, 8, '1970-01-01 00:00:08+00');


--
-- Data for Name: users; Type: TABLE DATA; Schema: kpipe_store; Owner: loader
--

INSERT INTO kpipe_store.users VALUES (3, 'c', 3, 1, 0, '1970-01-01 00:00:00+00');
INSERT INTO kpipe_store.users VALUES (1, 'a "quote", a \ and	two
lines', 4, 0, 2, '1970-01-01 00:00:00.000002+00');


--
-- Name: kpipe_commits kpipe_commits_pkey; Type: CONSTRAINT; Schema: kpipe_store; Owner: loader
--

ALTER TABLE ONLY kpipe_store.kpipe_commits
    ADD CONSTRAINT kpipe_commits_pkey PRIMARY KEY (batch_id);


--
-- Name: kpipe_format kpipe_format_pkey; Type: CONSTRAINT; Schema: kpipe_store; Owner: loader
--

ALTER TABLE ONLY kpipe_store.kpipe_format
    ADD CONSTRAINT kpipe_format_pkey PRIMARY KEY (name);


--
-- Name: kpipe_holdings kpipe_holdings_pkey; Type: CONSTRAINT; Schema: kpipe_store; Owner: loader
--

ALTER TABLE ONLY kpipe_store.kpipe_holdings
    ADD CONSTRAINT kpipe_holdings_pkey PRIMARY KEY (target_table, topic, partition);


--
-- Name: kpipe_ledger kpipe_ledger_pkey; Type: CONSTRAINT; Schema: kpipe_store; Owner: loader
--

ALTER TABLE ONLY kpipe_store.kpipe_ledger
    ADD CONSTRAINT kpipe_ledger_pkey PRIMARY KEY (pipeline_name, cluster_id, topic_id, topic, partition, lane_start);


--
-- Name: kpipe_partitions kpipe_partitions_pkey; Type: CONSTRAINT; Schema: kpipe_store; Owner: loader
--

ALTER TABLE ONLY kpipe_store.kpipe_partitions
    ADD CONSTRAINT kpipe_partitions_pkey PRIMARY KEY (pipeline_name, cluster_id, topic_id, topic, partition);


--
-- Name: kpipe_pipelines kpipe_pipelines_pkey; Type: CONSTRAINT; Schema: kpipe_store; Owner: loader
--

ALTER TABLE ONLY kpipe_store.kpipe_pipelines
    ADD CONSTRAINT kpipe_pipelines_pkey PRIMARY KEY (pipeline_name);


--
-- Name: kpipe_targets kpipe_targets_pkey; Type: CONSTRAINT; Schema: kpipe_store; Owner: loader
--

ALTER TABLE ONLY kpipe_store.kpipe_targets
    ADD CONSTRAINT kpipe_targets_pkey PRIMARY KEY (batch_id, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset, target_table);


--
-- Name: kpipe_batches_order; Type: INDEX; Schema: kpipe_store; Owner: loader
--

CREATE INDEX kpipe_batches_order ON kpipe_store.kpipe_batches USING btree (pipeline_name, seq);


--
-- Name: kpipe_commits_waiting; Type: INDEX; Schema: kpipe_store; Owner: loader
--

CREATE INDEX kpipe_commits_waiting ON kpipe_store.kpipe_commits USING btree (pipeline_name, seq) WHERE ((published_at IS NULL) AND (metadata IS NOT NULL));


--
-- Name: kpipe_errors_order; Type: INDEX; Schema: kpipe_store; Owner: loader
--

CREATE INDEX kpipe_errors_order ON kpipe_store.kpipe_errors USING btree (pipeline_name, error_id);


--
-- PostgreSQL database dump complete
--


