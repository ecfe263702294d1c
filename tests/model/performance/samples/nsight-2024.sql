-- Schema of Nsight Systems 2024.6 (export schema 3.16), without tables that are not read.
CREATE TABLE StringIds (
    id                          INTEGER   NOT NULL   PRIMARY KEY,
    value                       TEXT      NOT NULL
);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (
    gpuId                       INTEGER   NOT NULL,
    cudaId                      INTEGER   NOT NULL,
    pid                         INTEGER   NOT NULL,
    uuid                        TEXT      NOT NULL,
    numMultiprocessors          INTEGER   NOT NULL
);
CREATE TABLE META_DATA_EXPORT (
    name                        TEXT      NOT NULL,
    value                       TEXT
);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start                       INTEGER   NOT NULL,
    end                         INTEGER   NOT NULL,
    deviceId                    INTEGER   NOT NULL,
    contextId                   INTEGER   NOT NULL,
    greenContextId              INTEGER,
    streamId                    INTEGER   NOT NULL,
    correlationId               INTEGER,
    globalPid                   INTEGER,
    demangledName               INTEGER   NOT NULL,
    shortName                   INTEGER   NOT NULL,
    mangledName                 INTEGER,
    launchType                  INTEGER,
    cacheConfig                 INTEGER,
    registersPerThread          INTEGER   NOT NULL,
    gridX                       INTEGER   NOT NULL,
    gridY                       INTEGER   NOT NULL,
    gridZ                       INTEGER   NOT NULL,
    blockX                      INTEGER   NOT NULL,
    blockY                      INTEGER   NOT NULL,
    blockZ                      INTEGER   NOT NULL,
    staticSharedMemory          INTEGER   NOT NULL,
    dynamicSharedMemory         INTEGER   NOT NULL,
    localMemoryPerThread        INTEGER   NOT NULL,
    localMemoryTotal            INTEGER   NOT NULL,
    gridId                      INTEGER   NOT NULL,
    sharedMemoryExecuted        INTEGER,
    graphNodeId                 INTEGER,
    sharedMemoryLimitConfig     INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
    start                       INTEGER   NOT NULL,
    end                         INTEGER   NOT NULL,
    deviceId                    INTEGER   NOT NULL,
    contextId                   INTEGER   NOT NULL,
    greenContextId              INTEGER,
    streamId                    INTEGER   NOT NULL,
    correlationId               INTEGER,
    globalPid                   INTEGER,
    bytes                       INTEGER   NOT NULL,
    copyKind                    INTEGER   NOT NULL,
    deprecatedSrcId             INTEGER,
    srcKind                     INTEGER,
    dstKind                     INTEGER,
    srcDeviceId                 INTEGER,
    srcContextId                INTEGER,
    dstDeviceId                 INTEGER,
    dstContextId                INTEGER,
    migrationCause              INTEGER,
    graphNodeId                 INTEGER,
    virtualAddress              INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (
    start                       INTEGER   NOT NULL,
    end                         INTEGER   NOT NULL,
    deviceId                    INTEGER   NOT NULL,
    contextId                   INTEGER   NOT NULL,
    greenContextId              INTEGER,
    streamId                    INTEGER   NOT NULL,
    correlationId               INTEGER,
    globalPid                   INTEGER,
    value                       INTEGER   NOT NULL,
    bytes                       INTEGER   NOT NULL,
    graphNodeId                 INTEGER,
    memKind                     INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start                       INTEGER   NOT NULL,
    end                         INTEGER   NOT NULL,
    eventClass                  INTEGER   NOT NULL,
    globalTid                   INTEGER,
    correlationId               INTEGER,
    nameId                      INTEGER   NOT NULL,
    returnValue                 INTEGER   NOT NULL,
    callchainId                 INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (
    start                       INTEGER   NOT NULL,
    end                         INTEGER   NOT NULL,
    deviceId                    INTEGER   NOT NULL,
    contextId                   INTEGER   NOT NULL,
    greenContextId              INTEGER,
    streamId                    INTEGER   NOT NULL,
    correlationId               INTEGER,
    globalPid                   INTEGER,
    syncType                    INTEGER   NOT NULL,
    eventId                     INTEGER   NOT NULL
);
INSERT INTO StringIds VALUES (1, '[Unknown]'), (2, 'void gemm<float, 4>(float*)'), (3, 'gemm'), (4, 'relu'), (5, 'cudaMemcpyAsync_v3020'), (6, 'cudaLaunchKernel_v7000'), (7, 'cudaMemsetAsync_v3020'), (8, 'cudaGraphLaunch_v10000'), (9, 'cudaEventRecord_v3020'), (10, 'cudaStreamWaitEvent_v3020'), (11, 'cudaStreamSynchronize_v3020');
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2024.6.2.225'), ('EXPORT_SCHEMA_VERSION', '3.16.1');
INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 1042, '00000000-0000-0000-0000-000000000000', 108);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (700008000, 700012000, 0, 1, NULL, 7, 11, 72057611519787008, 65536, 1, NULL, 1, 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (700012500, 700040500, 0, 1, NULL, 7, 12, 72057611519787008, 2, 3, NULL, 1, 0, 32, 130, 1, 1, 128, 1, 1, 0, 0, 0, 0, 12, 32768, NULL, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (700041000, 700044000, 0, 1, NULL, 7, 13, 72057611519787008, 4, 4, NULL, 1, 0, 32, 130, 1, 1, 128, 1, 1, 0, 0, 0, 0, 13, 32768, NULL, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (700044500, 700045500, 0, 1, NULL, 7, 14, 72057611519787008, 0, 512, NULL, 2);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (700046000, 700047000, 0, 1, NULL, 7, 15, 72057611519787008, 2, 3, NULL, 1, 0, 32, 130, 1, 1, 128, 1, 1, 0, 0, 0, 0, 15, 32768, NULL, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (700047200, 700048000, 0, 1, NULL, 7, 15, 72057611519787008, 4, 4, NULL, 1, 0, 32, 130, 1, 1, 128, 1, 1, 0, 0, 0, 0, 15, 32768, NULL, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (700048500, 700050500, 0, 1, NULL, 13, 18, 72057611519787008, 4096, 2, NULL, 2, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (700000000, 700004000, 0, 72057611519788050, 11, 5, 0, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (700005000, 700008000, 0, 72057611519788050, 12, 6, 0, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (700009000, 700011500, 0, 72057611519788050, 13, 6, 0, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (700012000, 700014000, 0, 72057611519788050, 14, 7, 0, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (700015000, 700021000, 0, 72057611519788050, 15, 8, 0, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (700021500, 700022300, 0, 72057611519788050, 16, 9, 0, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (700022500, 700022900, 0, 72057611519788050, 17, 10, 0, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (700023000, 700026500, 0, 72057611519788050, 18, 5, 0, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (700027000, 700051000, 0, 72057611519788050, 19, 11, 0, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (700022600, 700022800, 0, 1, NULL, 13, 17, 72057611519787008, 2, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (700027100, 700050900, 0, 1, NULL, 13, 19, 72057611519787008, 3, 4294967295);
