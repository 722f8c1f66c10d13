/*M!999999\- enable the sandbox mode */ 
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `kpipe_batches` (
  `database_name` longtext DEFAULT NULL,
  `pipeline_name` longtext DEFAULT NULL,
  `batch_id` longtext DEFAULT NULL,
  `batch_state` longtext DEFAULT NULL,
  `batch_rows_written` bigint(20) DEFAULT NULL,
  `batch_time` double DEFAULT NULL,
  `batch_start_unix_timestamp` double DEFAULT NULL,
  `batch_partition_state` longtext DEFAULT NULL,
  `batch_partition_parsed_rows` bigint(20) DEFAULT NULL,
  `batch_source_partition_id` int(11) DEFAULT NULL,
  `batch_earliest_offset` bigint(20) DEFAULT NULL,
  `batch_latest_offset` bigint(20) DEFAULT NULL,
  `batch_partition_time` double DEFAULT NULL,
  `batch_partition_extracted_bytes` bigint(20) DEFAULT NULL,
  `batch_partition_extracted_rows` bigint(20) DEFAULT NULL,
  `cluster_id` longtext DEFAULT NULL,
  `topic_id` longtext DEFAULT NULL,
  `topic` longtext DEFAULT NULL,
  `target_table` longtext DEFAULT NULL,
  `seq` bigint(20) DEFAULT NULL,
  `closed_by` longtext DEFAULT NULL,
  `messages` bigint(20) DEFAULT NULL,
  `rows` bigint(20) DEFAULT NULL,
  `dead_letters` bigint(20) DEFAULT NULL,
  `filtered` bigint(20) DEFAULT NULL,
  `gaps` bigint(20) DEFAULT NULL,
  `given` bigint(20) DEFAULT NULL,
  `set_aside_before` bigint(20) DEFAULT NULL,
  `bytes` bigint(20) DEFAULT NULL,
  `deletes` bigint(20) DEFAULT NULL,
  `inserted` bigint(20) DEFAULT NULL,
  `updated` bigint(20) DEFAULT NULL,
  `deleted` bigint(20) DEFAULT NULL,
  `ignored` bigint(20) DEFAULT NULL,
  KEY `kpipe_batches_order` (`pipeline_name`(100),`seq`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `kpipe_batches` VALUES
('d3ce2763cbdf4','tweets','tweets-0.6-1.3','Succeeded',5,0.5,1700000000.123,'Succeeded',5,0,0,6,0,50,6,'cluster-1','topic-id-1','tweets','tweets',2,'caught_up',6,5,1,0,0,0,0,50,0,5,0,0,0),
('d3ce2763cbdf4','tweets','tweets-0.6-1.3','Succeeded',1,0.5,1700000000.123,'Succeeded',1,1,0,3,0,10,2,'cluster-1','topic-id-1','tweets','tweets',2,'caught_up',2,1,1,0,1,0,0,10,0,1,0,0,0),
('d3ce2763cbdf4','tweets','tweets-0.9','Succeeded',3,0.5,1700000000.123,'Succeeded',3,0,6,9,0,30,3,'cluster-1','topic-id-1','tweets','tweets',3,'caught_up',3,3,0,0,0,0,0,30,0,3,0,0,0),
('d3ce2763cbdf4','other','other-0.6-1.3','Succeeded',5,0.5,1700000000.123,'Succeeded',5,0,0,6,0,50,6,'cluster-1','topic-id-1','tweets','other',2,'caught_up',6,5,1,0,0,0,0,50,0,5,0,0,0),
('d3ce2763cbdf4','other','other-0.6-1.3','Succeeded',1,0.5,1700000000.123,'Succeeded',1,1,0,3,0,10,2,'cluster-1','topic-id-1','tweets','other',2,'caught_up',2,1,1,0,1,0,0,10,0,1,0,0,0),
('d3ce2763cbdf4','other','other-0.9','Succeeded',3,0.5,1700000000.123,'Succeeded',3,0,6,9,0,30,3,'cluster-1','topic-id-1','tweets','other',3,'caught_up',3,3,0,0,0,0,0,30,0,3,0,0,0),
('d3ce2763cbdf4','users','f1859dc946494d1cbb37d1ba6deeb685','Succeeded',2,0.5,1700000000.123,'Succeeded',2,0,0,2,0,2,2,'cluster-1','topic-id-1','tweets','users',2,'caught_up',2,2,0,0,0,0,0,2,0,2,0,0,0),
('d3ce2763cbdf4','users','f1859dc946494d1cbb37d1ba6deeb685','Succeeded',1,0.5,1700000000.123,'Succeeded',1,1,0,1,0,1,1,'cluster-1','topic-id-1','tweets','users',2,'caught_up',1,1,0,0,0,0,0,1,0,1,0,0,0),
('d3ce2763cbdf4','users','21d0ea7bbc7c4475a6632edbd7809c2d','Succeeded',2,0.5,1700000000.123,'Succeeded',1,0,2,4,0,2,2,'cluster-1','topic-id-1','tweets','users',3,'caught_up',2,1,0,0,0,0,0,2,1,0,1,1,0),
('d3ce2763cbdf4','shop','9ceb03a1a4963d10305863320fbd1989','Succeeded',1,1.1503308049996122,1795693114.403,'Succeeded',1,0,0,2,0.2386101640004199,138,2,'cluster-1','topic-1','orders','orders',2,'caught_up',2,1,0,1,0,1,0,138,0,1,0,0,0),
('d3ce2763cbdf4','shop','9ceb03a1a4963d10305863320fbd1989','Succeeded',1,1.1503308049996122,1795693114.403,'Succeeded',1,1,0,1,0.18916876500043145,86,1,'cluster-1','topic-1','orders','orders',2,'caught_up',1,1,0,0,0,1,0,86,0,1,0,0,0);
SET @saved_cs_client     = @@character_set_client;
SET character_set_client = utf8mb4;
/*!50001 CREATE VIEW `kpipe_batches_summary` AS SELECT
 NULL AS `database_name`,
 NULL AS `pipeline_name`,
 NULL AS `batch_id`,
 NULL AS `batch_state`,
 NULL AS `start_time`,
 NULL AS `batch_time`,
 NULL AS `rows_per_sec`,
 NULL AS `rows_streamed`,
 NULL AS `num_partitions`,
 NULL AS `num_partitions_finished`,
 NULL AS `mb_streamed`,
 NULL AS `mb_per_sec`,
 NULL AS `rows_inserted`,
 NULL AS `rows_updated`,
 NULL AS `rows_deleted`,
 NULL AS `seq`,
 NULL AS `dead_letters`,
 NULL AS `filtered`,
 NULL AS `gaps`,
 NULL AS `committed`,
 NULL AS `rows_ignored` */;
SET character_set_client = @saved_cs_client;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `kpipe_columns` (
  `target_table` varchar(128) NOT NULL,
  `column_name` varchar(128) NOT NULL,
  `kind` longtext DEFAULT NULL,
  PRIMARY KEY (`target_table`,`column_name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `kpipe_columns` VALUES
('order_lines','_kafka_timestamp','TIMESTAMP WITH TIME ZONE'),
('orders','_kafka_timestamp','TIMESTAMP WITH TIME ZONE'),
('other','_kafka_timestamp','TIMESTAMP WITH TIME ZONE'),
('tweets','_kafka_timestamp','TIMESTAMP WITH TIME ZONE'),
('users','_kafka_timestamp','TIMESTAMP WITH TIME ZONE');
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `kpipe_commits` (
  `batch_id` varchar(128) NOT NULL,
  `pipeline_name` longtext DEFAULT NULL,
  `seq` bigint(20) DEFAULT NULL,
  `kind` longtext DEFAULT NULL,
  `target_table` longtext DEFAULT NULL,
  `run_id` longtext DEFAULT NULL,
  `version` longtext DEFAULT NULL,
  `started` datetime(6) DEFAULT NULL,
  `committed` datetime(6) DEFAULT NULL,
  `seconds` double DEFAULT NULL,
  `messages` bigint(20) DEFAULT NULL,
  `rows` bigint(20) DEFAULT NULL,
  `dead_letters` bigint(20) DEFAULT NULL,
  `filtered` bigint(20) DEFAULT NULL,
  `gaps` bigint(20) DEFAULT NULL,
  `given` bigint(20) DEFAULT NULL,
  `set_aside_before` bigint(20) DEFAULT NULL,
  `bytes` bigint(20) DEFAULT NULL,
  `deletes` bigint(20) DEFAULT NULL,
  `inserted` bigint(20) DEFAULT NULL,
  `updated` bigint(20) DEFAULT NULL,
  `deleted` bigint(20) DEFAULT NULL,
  `ignored` bigint(20) DEFAULT NULL,
  `note` longtext DEFAULT NULL,
  `metadata` longtext DEFAULT NULL,
  `published_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`batch_id`),
  KEY `kpipe_commits_waiting` (`pipeline_name`(100),`published_at`,`seq`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `kpipe_commits` VALUES
('21d0ea7bbc7c4475a6632edbd7809c2d','users',3,'batch','users','','','2023-11-14 22:13:20.123000','2026-11-26 11:38:34.301592',0.5,2,1,0,0,0,0,0,2,1,0,1,1,0,'','{\"0\": {\"rows\": 1, \"inserted\": 0, \"updated\": 1}}',NULL),
('9ceb03a1a4963d10305863320fbd1989','shop',2,'batch','orders','','','2026-11-26 11:38:34.403000','2026-11-26 11:38:35.830166',1.1503308049996122,3,2,0,1,0,2,0,224,0,2,0,0,0,'','{\"0\": {\"batch\": \"9ceb03a1a4963d10305863320fbd1989\", \"start_offset\": 0, \"end_offset\": 2, \"messages\": 2, \"rows\": 1, \"inserted\": 1, \"updated\": 0, \"deleted\": 0, \"ignored\": 0, \"dead_letters\": 0, \"filtered\": 1, \"gaps\": 0, \"bytes\": 138, \"lag\": 0, \"rows_per_second\": 0.9, \"core_seconds\": 0.23861, \"targets\": {\"order_lines\": {\"rows\": 2, \"inserted\": 2, \"updated\": 0, \"deleted\": 0, \"ignored\": 0}}}, \"1\": {\"batch\": \"9ceb03a1a4963d10305863320fbd1989\", \"start_offset\": 0, \"end_offset\": 1, \"messages\": 1, \"rows\": 1, \"inserted\": 1, \"updated\": 0, \"deleted\": 0, \"ignored\": 0, \"dead_letters\": 0, \"filtered\": 0, \"gaps\": 0, \"bytes\": 86, \"lag\": 0, \"rows_per_second\": 0.9, \"core_seconds\": 0.189169, \"targets\": {\"order_lines\": {\"rows\": 1, \"inserted\": 1, \"updated\": 0, \"deleted\": 0, \"ignored\": 0}}}}',NULL),
('b0b3e217061f42eb8f7d0e59ac27607a','shop',1,'begin','orders','','','2026-11-26 11:38:34.416000','2026-11-26 11:38:34.441646',0,0,0,0,0,0,0,0,0,0,0,0,0,0,'begin: orders/0 at 0, orders/1 at 0',NULL,NULL),
('d2f1b321cba542f7a0c4ae13f6a7ffd3','users',1,'begin','users','','','1970-01-01 00:00:00.000000','2026-11-26 11:38:33.887565',0,0,0,0,0,0,0,0,0,0,0,0,0,0,'begin',NULL,NULL),
('f1859dc946494d1cbb37d1ba6deeb685','users',2,'batch','users','','','2023-11-14 22:13:20.123000','2026-11-26 11:38:34.048448',0.5,3,3,0,0,0,0,0,3,0,3,0,0,0,'','{\"0\": {\"rows\": 2, \"inserted\": 2, \"updated\": 0}, \"1\": {\"rows\": 1, \"inserted\": 1, \"updated\": 0}}',NULL),
('other-0.6-1.3','other',2,'batch','other','run-1','v1','2023-11-14 22:13:20.123000','2026-11-26 11:38:33.841765',0.5,8,6,2,0,1,0,0,60,0,6,0,0,0,'it\'s a note','{\"0\": {\"end_offset\": 6, \"rows\": 5}, \"1\": {\"end_offset\": 3, \"rows\": 1}}','2026-11-26 11:38:33.000000'),
('other-0.9','other',3,'batch','other','run-1','v1','2023-11-14 22:13:20.123000','2026-11-26 11:38:33.870022',0.5,3,3,0,0,0,0,0,30,0,3,0,0,0,'it\'s a note','{\"0\": {\"end_offset\": 9, \"rows\": 3}}',NULL),
('other-begin','other',1,'begin','other','','','1970-01-01 00:00:00.000000','2026-11-26 11:38:33.757049',0,0,0,0,0,0,0,0,0,0,0,0,0,0,'begin',NULL,NULL),
('tweets-0.6-1.3','tweets',2,'batch','tweets','run-1','v1','2023-11-14 22:13:20.123000','2026-11-26 11:38:33.587374',0.5,8,6,2,0,1,0,0,60,0,6,0,0,0,'it\'s a note','{\"0\": {\"end_offset\": 6, \"rows\": 5}, \"1\": {\"end_offset\": 3, \"rows\": 1}}','2026-11-26 11:38:33.000000'),
('tweets-0.9','tweets',3,'batch','tweets','run-1','v1','2023-11-14 22:13:20.123000','2026-11-26 11:38:33.734517',0.5,3,3,0,0,0,0,0,30,0,3,0,0,0,'it\'s a note','{\"0\": {\"end_offset\": 9, \"rows\": 3}}',NULL),
('tweets-begin','tweets',1,'begin','tweets','','','1970-01-01 00:00:00.000000','2026-11-26 11:38:33.193310',0,0,0,0,0,0,0,0,0,0,0,0,0,0,'begin',NULL,NULL);
SET @saved_cs_client     = @@character_set_client;
SET character_set_client = utf8mb4;
/*!50001 CREATE VIEW `kpipe_cursors` AS SELECT
 NULL AS `database_name`,
 NULL AS `pipeline_name`,
 NULL AS `source_type`,
 NULL AS `source_partition_id`,
 NULL AS `earliest_offset`,
 NULL AS `latest_offset`,
 NULL AS `cursor_offset`,
 NULL AS `successful_cursor_offset`,
 NULL AS `updated_unix_timestamp`,
 NULL AS `topic`,
 NULL AS `cluster_id`,
 NULL AS `topic_id` */;
SET character_set_client = @saved_cs_client;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `kpipe_errors` (
  `database_name` longtext DEFAULT NULL,
  `pipeline_name` longtext DEFAULT NULL,
  `error_unix_timestamp` double DEFAULT NULL,
  `error_type` longtext DEFAULT NULL,
  `error_code` longtext DEFAULT NULL,
  `error_message` longtext DEFAULT NULL,
  `error_kind` longtext DEFAULT NULL,
  `std_error` longtext DEFAULT NULL,
  `load_data_line` longblob DEFAULT NULL,
  `load_data_line_number` bigint(20) DEFAULT NULL,
  `batch_id` longtext DEFAULT NULL,
  `error_id` bigint(20) DEFAULT NULL,
  `batch_source_partition_id` int(11) DEFAULT NULL,
  `batch_earliest_offset` bigint(20) DEFAULT NULL,
  `batch_latest_offset` bigint(20) DEFAULT NULL,
  `dead_letter` tinyint(1) DEFAULT NULL,
  `stage` longtext DEFAULT NULL,
  `topic` longtext DEFAULT NULL,
  `partition` int(11) DEFAULT NULL,
  `offset` bigint(20) DEFAULT NULL,
  `kafka_timestamp` datetime(6) DEFAULT NULL,
  `key` longblob DEFAULT NULL,
  `headers` longtext DEFAULT NULL,
  `version` longtext DEFAULT NULL,
  KEY `kpipe_errors_order` (`pipeline_name`(100),`error_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `kpipe_errors` VALUES
('d3ce2763cbdf4','tweets',1795693113.5780432,'Warning','RecordRejected','not JSON: \'; DROP TABLE tweets; --','External',NULL,0x7BFF273B202D2D,NULL,'tweets-0.6-1.3',1,0,0,6,1,'parse','tweets',0,2,'2023-11-14 22:13:20.000000',0x6B,'[{\"name\":\"h\",\"value\":\"AA==\"}]','v1'),
('d3ce2763cbdf4','tweets',1795693113.5780432,'Warning','RecordRejected','not JSON: \'; DROP TABLE tweets; --','External',NULL,0x7BFF273B202D2D,NULL,'tweets-0.6-1.3',2,1,0,3,1,'parse','tweets',1,0,'2023-11-14 22:13:20.000000',0x6B,'[{\"name\":\"h\",\"value\":\"AA==\"}]','v1'),
('d3ce2763cbdf4','tweets',1795693113.7502863,'Error','RecordRejected','stopped: it\'s   broken','External',NULL,NULL,NULL,NULL,3,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),
('d3ce2763cbdf4','other',1795693113.8404675,'Warning','RecordRejected','not JSON: \'; DROP TABLE tweets; --','External',NULL,0x7BFF273B202D2D,NULL,'other-0.6-1.3',1,0,0,6,1,'parse','tweets',0,2,'2023-11-14 22:13:20.000000',0x6B,'[{\"name\":\"h\",\"value\":\"AA==\"}]','v1'),
('d3ce2763cbdf4','other',1795693113.8404675,'Warning','RecordRejected','not JSON: \'; DROP TABLE tweets; --','External',NULL,0x7BFF273B202D2D,NULL,'other-0.6-1.3',2,1,0,3,1,'parse','tweets',1,0,'2023-11-14 22:13:20.000000',0x6B,'[{\"name\":\"h\",\"value\":\"AA==\"}]','v1'),
('d3ce2763cbdf4','other',1795693113.8820105,'Error','RecordRejected','stopped: it\'s   broken','External',NULL,NULL,NULL,NULL,3,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `kpipe_format` (
  `name` varchar(128) NOT NULL,
  `version` int(11) DEFAULT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `kpipe_format` VALUES
('ledger',2);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `kpipe_holdings` (
  `target_table` varchar(128) NOT NULL,
  `topic` varchar(249) NOT NULL,
  `partition` int(11) NOT NULL,
  `rows` bigint(20) DEFAULT NULL,
  `offsets` decimal(38,0) DEFAULT NULL,
  `baseline` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`target_table`,`topic`,`partition`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `kpipe_holdings` VALUES
('users','',-1,0,0,0),
('users','',0,1,2,0),
('users','',1,1,0,0);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `kpipe_ledger` (
  `pipeline_name` varchar(128) NOT NULL,
  `cluster_id` varchar(128) NOT NULL,
  `topic_id` varchar(64) NOT NULL,
  `topic` varchar(249) NOT NULL,
  `partition` int(11) NOT NULL,
  `lane_start` bigint(20) NOT NULL,
  `next_offset` bigint(20) DEFAULT NULL,
  `lane_end` bigint(20) DEFAULT NULL,
  `kind` longtext DEFAULT NULL,
  `batch_id` longtext DEFAULT NULL,
  `tail` longtext DEFAULT NULL,
  PRIMARY KEY (`pipeline_name`,`cluster_id`,`topic_id`,`topic`,`partition`,`lane_start`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `kpipe_ledger` VALUES
('other','cluster-1','topic-id-1','tweets',0,0,9,NULL,'read','other-0.9','3 - 6:00000006 7:00000007 8:00000008'),
('other','cluster-1','topic-id-1','tweets',1,0,3,NULL,'read','other-0.6-1.3','3 - 0:00000000 1:00000001 2:00000002'),
('shop','cluster-1','topic-1','orders',0,0,2,NULL,'read','9ceb03a1a4963d10305863320fbd1989',NULL),
('shop','cluster-1','topic-1','orders',1,0,1,NULL,'read','9ceb03a1a4963d10305863320fbd1989',NULL),
('tweets','cluster-1','topic-id-1','tweets',0,0,9,NULL,'read','tweets-0.9','3 - 6:00000006 7:00000007 8:00000008'),
('tweets','cluster-1','topic-id-1','tweets',1,0,3,NULL,'read','tweets-0.6-1.3','3 - 0:00000000 1:00000001 2:00000002'),
('users','cluster-1','topic-id-1','tweets',0,0,4,NULL,'read','21d0ea7bbc7c4475a6632edbd7809c2d',NULL),
('users','cluster-1','topic-id-1','tweets',1,0,1,NULL,'read','f1859dc946494d1cbb37d1ba6deeb685',NULL);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `kpipe_partitions` (
  `pipeline_name` varchar(128) NOT NULL,
  `cluster_id` varchar(128) NOT NULL,
  `topic_id` varchar(64) NOT NULL,
  `topic` varchar(249) NOT NULL,
  `partition` int(11) NOT NULL,
  `earliest_offset` bigint(20) DEFAULT NULL,
  `latest_offset` bigint(20) DEFAULT NULL,
  `updated_unix_timestamp` double DEFAULT NULL,
  PRIMARY KEY (`pipeline_name`,`cluster_id`,`topic_id`,`topic`,`partition`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `kpipe_partitions` VALUES
('other','cluster-1','topic-id-1','tweets',0,0,16,1795693113.8707922),
('other','cluster-1','topic-id-1','tweets',1,0,10,1795693113.8427775),
('shop','cluster-1','topic-1','orders',0,0,2,1795693115.8314753),
('shop','cluster-1','topic-1','orders',1,0,1,1795693115.831478),
('tweets','cluster-1','topic-id-1','tweets',0,0,16,1795693113.735664),
('tweets','cluster-1','topic-id-1','tweets',1,0,10,1795693113.5887897),
('users','cluster-1','topic-id-1','tweets',0,0,4,1795693114.302436),
('users','cluster-1','topic-id-1','tweets',1,0,1,1795693114.0583758);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `kpipe_pipelines` (
  `database_name` longtext DEFAULT NULL,
  `pipeline_name` varchar(128) NOT NULL,
  `pipeline_id` longtext DEFAULT NULL,
  `config_json` longtext DEFAULT NULL,
  `state` longtext DEFAULT NULL,
  `skipped_batches` bigint(20) DEFAULT NULL,
  `seq` bigint(20) DEFAULT NULL,
  `seal` bigint(20) DEFAULT NULL,
  `target_table` longtext DEFAULT NULL,
  `rows` bigint(20) DEFAULT NULL,
  `dead_letters` bigint(20) DEFAULT NULL,
  `error_events` bigint(20) DEFAULT NULL,
  `last_batch_id` longtext DEFAULT NULL,
  `last_error` longtext DEFAULT NULL,
  `created` datetime(6) DEFAULT NULL,
  `updated` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`pipeline_name`),
  KEY `kpipe_pipelines_target` (`target_table`(100))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `kpipe_pipelines` VALUES
('d3ce2763cbdf4','other','ec6fd428-b946-40f4-ac0f-8a896bfb49e7','{\"source_type\": \"KAFKA\"}','error',0,3,593662045541051923,'other',9,2,3,'other-0.9','stopped: it\'s   broken','2026-11-26 11:38:33.755322','2026-11-26 11:38:33.000000'),
('d3ce2763cbdf4','shop','6e9307e2-6bf7-4d94-8e20-1abdd7c2c57f','{}','running',0,2,5255242911885630202,'orders',2,0,0,'9ceb03a1a4963d10305863320fbd1989',NULL,'2026-11-26 11:38:34.434588','2026-11-26 11:38:35.698470'),
('d3ce2763cbdf4','tweets','db0dcf34-50bc-4f9f-9810-29223a0604d9','{\"source_type\": \"KAFKA\"}','error',0,3,593662045541051923,'tweets',9,2,3,'tweets-0.9','stopped: it\'s   broken','2026-11-26 11:38:33.187234','2026-11-26 11:38:33.000000'),
('d3ce2763cbdf4','users','04533308-b8ed-4272-ae0e-e8fa3ff17722','{\"source_type\": \"KAFKA\"}','running',0,3,1389991580580654321,'users',2,0,0,'21d0ea7bbc7c4475a6632edbd7809c2d',NULL,'2026-11-26 11:38:33.886799','2026-11-26 11:38:34.160630');
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `kpipe_targets` (
  `pipeline_name` longtext DEFAULT NULL,
  `batch_id` varchar(128) NOT NULL,
  `seq` bigint(20) DEFAULT NULL,
  `cluster_id` varchar(128) NOT NULL,
  `topic_id` varchar(64) NOT NULL,
  `topic` varchar(249) NOT NULL,
  `batch_source_partition_id` int(11) NOT NULL,
  `batch_earliest_offset` bigint(20) NOT NULL,
  `batch_latest_offset` bigint(20) DEFAULT NULL,
  `closed_by` longtext DEFAULT NULL,
  `batch_state` longtext DEFAULT NULL,
  `target_table` varchar(128) NOT NULL,
  `rows` bigint(20) DEFAULT NULL,
  `records` bigint(20) DEFAULT NULL,
  `offsets` decimal(38,0) DEFAULT NULL,
  `inserted` bigint(20) DEFAULT NULL,
  `updated` bigint(20) DEFAULT NULL,
  `deleted` bigint(20) DEFAULT NULL,
  `ignored` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`batch_id`,`cluster_id`,`topic_id`,`topic`,`batch_source_partition_id`,`batch_earliest_offset`,`target_table`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `kpipe_targets` VALUES
('shop','9ceb03a1a4963d10305863320fbd1989',2,'cluster-1','topic-1','orders',0,0,2,'caught_up','Succeeded','order_lines',2,1,0,2,0,0,0),
('shop','9ceb03a1a4963d10305863320fbd1989',2,'cluster-1','topic-1','orders',0,0,2,'caught_up','Succeeded','orders',1,1,0,1,0,0,0),
('shop','9ceb03a1a4963d10305863320fbd1989',2,'cluster-1','topic-1','orders',1,0,1,'caught_up','Succeeded','order_lines',1,1,0,1,0,0,0),
('shop','9ceb03a1a4963d10305863320fbd1989',2,'cluster-1','topic-1','orders',1,0,1,'caught_up','Succeeded','orders',1,1,0,1,0,0,0);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `order_lines` (
  `id` bigint(20) DEFAULT NULL,
  `number` bigint(20) DEFAULT NULL,
  `sku` longtext DEFAULT NULL,
  `quantity` int(11) DEFAULT NULL,
  `discount` int(11) DEFAULT NULL,
  `_kafka_partition` int(11) DEFAULT NULL,
  `_kafka_offset` bigint(20) DEFAULT NULL,
  `_kafka_timestamp` datetime(6) DEFAULT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `order_lines` VALUES
(1,1,'s0',5,NULL,0,0,'2023-11-14 22:13:20.000000'),
(1,2,'s1',6,NULL,0,0,'2023-11-14 22:13:20.000000'),
(2,1,'s0',7,NULL,1,0,'2023-11-14 22:13:20.000000');
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `orders` (
  `id` bigint(20) DEFAULT NULL,
  `customer` longtext DEFAULT NULL,
  `_kafka_partition` int(11) DEFAULT NULL,
  `_kafka_offset` bigint(20) DEFAULT NULL,
  `_kafka_timestamp` datetime(6) DEFAULT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `orders` VALUES
(1,'it\'s 1',0,0,'2023-11-14 22:13:20.000000'),
(2,'c2',1,0,'2023-11-14 22:13:20.000000');
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `other` (
  `id` bigint(20) DEFAULT NULL,
  `text` longtext DEFAULT NULL,
  `amount` decimal(18,3) DEFAULT NULL,
  `order` longtext DEFAULT NULL,
  `naïve` longtext DEFAULT NULL,
  `doc` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`doc`)),
  `_kafka_partition` int(11) DEFAULT NULL,
  `_kafka_offset` bigint(20) DEFAULT NULL,
  `_kafka_timestamp` datetime(6) DEFAULT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `other` VALUES
(0,'\'; DROP TABLE tweets; --',-0.375,'select 0','\'; DROP TABLE tweets; --','{\"k\":[0,\"\'; DROP TABLE tweets; --\"]}',0,0,'1970-01-01 00:00:00.000000'),
(1,'a \"quote\", a \\ and	two\nlines',-0.250,'select 1','a \"quote\", a \\ and	two\nlines','{\"k\":[1,\"a \\\"quote\\\", a \\\\ and\\ttwo\\nlines\"]}',0,1,'1970-01-01 00:00:01.000000'),
(3,'$1 %s {} {{ x }} ?',0.000,'select 3','$1 %s {} {{ x }} ?','{\"k\":[3,\"$1 %s {} {{ x }} ?\"]}',0,3,'1970-01-01 00:00:03.000000'),
(4,'',0.125,'select 4','','{\"k\":[4,\"\"]}',0,4,'1970-01-01 00:00:04.000000'),
(5,NULL,0.250,'select 5',NULL,'{\"k\":[5,null]}',0,5,'1970-01-01 00:00:05.000000'),
(1002,'$1 %s {} {{ x }} ?',-0.125,'select 2','$1 %s {} {{ x }} ?','{\"k\":[2,\"$1 %s {} {{ x }} ?\"]}',1,2,'1970-01-01 00:00:02.000000'),
(6,'NULL',0.375,'select 6','NULL','{\"k\":[6,\"NULL\"]}',0,6,'1970-01-01 00:00:06.000000'),
(7,'../../etc/passwd',0.500,'select 7','../../etc/passwd','{\"k\":[7,\"../../etc/passwd\"]}',0,7,'1970-01-01 00:00:07.000000'),
(8,'\'; DROP TABLE tweets; --',0.625,'select 8','\'; DROP TABLE tweets; --','{\"k\":[8,\"\'; DROP TABLE tweets; --\"]}',0,8,'1970-01-01 00:00:08.000000');
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `tweets` (
  `id` bigint(20) DEFAULT NULL,
  `text` longtext DEFAULT NULL,
  `amount` decimal(18,3) DEFAULT NULL,
  `order` longtext DEFAULT NULL,
  `naïve` longtext DEFAULT NULL,
  `doc` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`doc`)),
  `_kafka_partition` int(11) DEFAULT NULL,
  `_kafka_offset` bigint(20) DEFAULT NULL,
  `_kafka_timestamp` datetime(6) DEFAULT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `tweets` VALUES
(0,'\'; DROP TABLE tweets; --',-0.375,'select 0','\'; DROP TABLE tweets; --','{\"k\":[0,\"\'; DROP TABLE tweets; --\"]}',0,0,'1970-01-01 00:00:00.000000'),
(1,'a \"quote\", a \\ and	two\nlines',-0.250,'select 1','a \"quote\", a \\ and	two\nlines','{\"k\":[1,\"a \\\"quote\\\", a \\\\ and\\ttwo\\nlines\"]}',0,1,'1970-01-01 00:00:01.000000'),
(3,'$1 %s {} {{ x }} ?',0.000,'select 3','$1 %s {} {{ x }} ?','{\"k\":[3,\"$1 %s {} {{ x }} ?\"]}',0,3,'1970-01-01 00:00:03.000000'),
(4,'',0.125,'select 4','','{\"k\":[4,\"\"]}',0,4,'1970-01-01 00:00:04.000000'),
(5,NULL,0.250,'select 5',NULL,'{\"k\":[5,null]}',0,5,'1970-01-01 00:00:05.000000'),
(1002,'$1 %s {} {{ x }} ?',-0.125,'select 2','$1 %s {} {{ x }} ?','{\"k\":[2,\"$1 %s {} {{ x }} ?\"]}',1,2,'1970-01-01 00:00:02.000000'),
(6,'NULL',0.375,'select 6','NULL','{\"k\":[6,\"NULL\"]}',0,6,'1970-01-01 00:00:06.000000'),
(7,'../../etc/passwd',0.500,'select 7','../../etc/passwd','{\"k\":[7,\"../../etc/passwd\"]}',0,7,'1970-01-01 00:00:07.000000'),
(8,'\'; DROP TABLE tweets; --',0.625,'select 8','\'; DROP TABLE tweets; --','{\"k\":[8,\"\'; DROP TABLE tweets; --\"]}',0,8,'1970-01-01 00:00:08.000000');
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `users` (
  `id` bigint(20) DEFAULT NULL,
  `text` longtext DEFAULT NULL,
  `n` bigint(20) DEFAULT NULL,
  `_kafka_partition` int(11) DEFAULT NULL,
  `_kafka_offset` bigint(20) DEFAULT NULL,
  `_kafka_timestamp` datetime(6) DEFAULT NULL,
  KEY `kpipe_key` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `users` VALUES
(3,'c',3,1,0,'1970-01-01 00:00:00.000000'),
(1,'a \"quote\", a \\ and	two\nlines',4,0,2,'1970-01-01 00:00:00.000002');
/*!50001 DROP VIEW IF EXISTS `kpipe_batches_summary`*/;
/*!50001 SET @saved_cs_client          = @@character_set_client */;
/*!50001 SET @saved_cs_results         = @@character_set_results */;
/*!50001 SET @saved_col_connection     = @@collation_connection */;
/*!50001 SET character_set_client      = utf8mb4 */;
/*!50001 SET character_set_results     = utf8mb4 */;
/*!50001 SET collation_connection      = utf8mb4_general_ci */;
/*!50001 CREATE ALGORITHM=UNDEFINED */
/*!50013 DEFINER=`loader`@`%` SQL SECURITY DEFINER */
/*!50001 VIEW `kpipe_batches_summary` AS select min(`b`.`database_name`) AS `database_name`,`b`.`pipeline_name` AS `pipeline_name`,`b`.`batch_id` AS `batch_id`,min(`b`.`batch_state`) AS `batch_state`,cast('1970-01-01' as datetime(6)) + interval cast(min(`b`.`batch_start_unix_timestamp`) * 1000000 as signed) microsecond AS `start_time`,max(`b`.`batch_time`) AS `batch_time`,sum(`b`.`batch_partition_extracted_rows`) / nullif(max(`b`.`batch_time`),0) AS `rows_per_sec`,cast(sum(`b`.`batch_partition_extracted_rows`) as signed) AS `rows_streamed`,count(distinct concat(`b`.`topic`,'/',`b`.`batch_source_partition_id`)) AS `num_partitions`,count(distinct case when `b`.`batch_partition_state` = 'Succeeded' then concat(`b`.`topic`,'/',`b`.`batch_source_partition_id`) end) AS `num_partitions_finished`,sum(`b`.`batch_partition_extracted_bytes`) / 1e6 AS `mb_streamed`,sum(`b`.`batch_partition_extracted_bytes`) / 1e6 / nullif(max(`b`.`batch_time`),0) AS `mb_per_sec`,cast(sum(`b`.`inserted`) as signed) AS `rows_inserted`,cast(sum(`b`.`updated`) as signed) AS `rows_updated`,cast(sum(`b`.`deleted`) as signed) AS `rows_deleted`,min(`b`.`seq`) AS `seq`,cast(sum(`b`.`dead_letters`) as signed) AS `dead_letters`,cast(sum(`b`.`filtered`) as signed) AS `filtered`,cast(sum(`b`.`gaps`) as signed) AS `gaps`,min(`c`.`committed`) AS `committed`,cast(sum(`b`.`ignored`) as signed) AS `rows_ignored` from (`kpipe_batches` `b` left join `kpipe_commits` `c` on(`c`.`batch_id` = `b`.`batch_id`)) group by `b`.`pipeline_name`,`b`.`batch_id` */;
/*!50001 SET character_set_client      = @saved_cs_client */;
/*!50001 SET character_set_results     = @saved_cs_results */;
/*!50001 SET collation_connection      = @saved_col_connection */;
/*!50001 DROP VIEW IF EXISTS `kpipe_cursors`*/;
/*!50001 SET @saved_cs_client          = @@character_set_client */;
/*!50001 SET @saved_cs_results         = @@character_set_results */;
/*!50001 SET @saved_col_connection     = @@collation_connection */;
/*!50001 SET character_set_client      = utf8mb4 */;
/*!50001 SET character_set_results     = utf8mb4 */;
/*!50001 SET collation_connection      = utf8mb4_general_ci */;
/*!50001 CREATE ALGORITHM=UNDEFINED */
/*!50013 DEFINER=`loader`@`%` SQL SECURITY DEFINER */
/*!50001 VIEW `kpipe_cursors` AS select `p`.`database_name` AS `database_name`,`p`.`pipeline_name` AS `pipeline_name`,'KAFKA' AS `source_type`,`l`.`partition` AS `source_partition_id`,coalesce(min(`k`.`earliest_offset`),min(`l`.`lane_start`)) AS `earliest_offset`,coalesce(min(`k`.`latest_offset`),max(case when `l`.`kind` = 'read' then `l`.`next_offset` end)) AS `latest_offset`,max(case when `l`.`kind` = 'read' then `l`.`next_offset` end) AS `cursor_offset`,coalesce(min(case when `l`.`kind` <> 'read' then `l`.`lane_start` when `l`.`lane_end` is null or `l`.`next_offset` < `l`.`lane_end` then `l`.`next_offset` end),max(`l`.`next_offset`)) AS `successful_cursor_offset`,coalesce(min(`k`.`updated_unix_timestamp`),timestampdiff(MICROSECOND,'1970-01-01',min(`p`.`updated`)) / 1e6) AS `updated_unix_timestamp`,`l`.`topic` AS `topic`,`l`.`cluster_id` AS `cluster_id`,`l`.`topic_id` AS `topic_id` from ((`kpipe_ledger` `l` join `kpipe_pipelines` `p` on(`p`.`pipeline_name` = `l`.`pipeline_name`)) left join `kpipe_partitions` `k` on(`k`.`pipeline_name` = `l`.`pipeline_name` and `k`.`cluster_id` = `l`.`cluster_id` and `k`.`topic_id` = `l`.`topic_id` and `k`.`topic` = `l`.`topic` and `k`.`partition` = `l`.`partition`)) group by `p`.`database_name`,`p`.`pipeline_name`,`l`.`cluster_id`,`l`.`topic_id`,`l`.`topic`,`l`.`partition` */;
/*!50001 SET character_set_client      = @saved_cs_client */;
/*!50001 SET character_set_results     = @saved_cs_results */;
/*!50001 SET collation_connection      = @saved_col_connection */;
