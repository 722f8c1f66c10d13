CREATE OR REPLACE PIPELINE shop
AS LOAD DATA KAFKA '${env:KAFKA_BROKERS}' TOPICS ('shop.berlin', 'shop.oslo')
OPTIONS '{"columns": {"id": "BIGINT", "customer": "VARCHAR", "lines": "STRUCT(sku VARCHAR, quantity INTEGER)[]"},
          "select": "SELECT id, customer, len(lines) AS positions FROM records"}'
INTO TABLE orders
FORMAT JSON
ALSO INTO TABLE order_lines
SETTINGS '{"select": "SELECT id, number, line.sku AS sku, line.quantity AS quantity FROM records, UNNEST(lines) WITH ORDINALITY AS t(line, number)"}';
