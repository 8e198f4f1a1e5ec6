/* A stand-in for libnvidia-ml.so.1: the NVML calls that gpusched, gpustat and nvitop make, answered from a file.
 *
 * The environment variable NVML_STAND_IN names that file. Its lines are (GPU: an index, or * for all of them):
 *     driver 535.129.03              cuda 12020               gpus 4
 *     set GPU KEY VALUE              a field of `struct device`; memory in MiB, power in mW; -1: not supported;
 *                                    clocks: the mask of reasons why they are low; energy: in mJ; stale 1: samples
 *                                    are returned whatever time they are asked for
 *     sample GPU PID TIME SM         of a process' use: TIME in microseconds, SM in percent
 *     mig GPU TOTAL USED             one more instance of that GPU, memory in MiB
 *     process GPU KIND PID MIB       KIND: C, G or M (MPS); GPU: 0, or 0:1 for the second instance; MIB -1: not told
 *     accounted GPU PID MIB          the most that a process has held: of GPUs with `set GPU accounting 1`
 *     ended GPU PID MIB              the same of a process that has ended
 *     fault CALL GPU CODE            that call returns that code; `fault CALL GPU sleep SECONDS`: it answers late
 *     event GPU xid NUMBER           happens, once in each process, while somebody waits
 * A file that was replaced is read anew by nvmlDeviceGetCount, and its further events by nvmlEventSetWait.
 * Built with -DR418 it lacks the calls that drivers of 2019 lack. Prototypes and structures: nvml.h of NVIDIA.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       TIMEOUT = 10, ARGUMENT_VERSION_MISMATCH = 25 };
enum { GPUS = 128, INSTANCES = 8, PROCESSES = 512, FAULTS = 64, NONE = -1, XID = 8, DOUBLE_BIT = 2, IDLE = 1 };
#define MIB(amount) ((unsigned long long)(amount) * (1 << 20) + 123456) /* no whole MiB: rounding shows */

typedef unsigned long long u64;
typedef struct device {
    int index, instance; /* instance: NONE for a physical GPU */
    char name[96], uuid[96];
    long total, used, reserved, util, temp, power, limit, fan, compute, persistence, mig, perf, ecc, cpus, clocks, energy,
        stale, accounting;
} *Device;
struct process { int gpu, instance; char kind; unsigned pid; long mib; };
struct account { int gpu; unsigned pid; long mib; int running; };
struct sample { int gpu; unsigned pid, sm; unsigned long long time; };
struct fault { char call[64]; int gpu, code, seconds; };

typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } Memory_v2;
typedef struct { unsigned pid; u64 used; } ProcessInfo_v1;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } ProcessInfo;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned gpu, memory; u64 peak, time, start; unsigned running, reserved[5]; } AccountingStats;
typedef struct { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; } ProcessUtilization;
typedef struct { Device device; u64 type, data; unsigned gpu_instance, compute_instance; } Event;
_Static_assert(sizeof(Memory_v2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(ProcessInfo) == 24, "nvmlProcessInfo_t");
_Static_assert(sizeof(AccountingStats) == 56, "nvmlAccountingStats_t");
_Static_assert(sizeof(Pci) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(Event) == 32, "nvmlEventData_t");
_Static_assert(sizeof(ProcessUtilization) == 32, "nvmlProcessUtilizationSample_t");

static struct device devices[GPUS], instances[GPUS][INSTANCES];
static struct process processes[PROCESSES];
static struct sample samples[PROCESSES];
static struct account accounts[PROCESSES];
static struct fault faults[FAULTS];
static int gpus, process_count, sample_count, account_count, fault_count, instance_count[GPUS], cuda = 12020, started;
static char driver[80] = "535.129.03";
static struct stat last_read;
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

/* ---- the scenario ---- */

static void set(Device d, const char *key, const char *value) {
    struct { const char *key; long *field; } numbers[] = {
        {"total", &d->total}, {"used", &d->used}, {"reserved", &d->reserved}, {"util", &d->util}, {"temp", &d->temp},
        {"power", &d->power}, {"limit", &d->limit}, {"fan", &d->fan}, {"compute", &d->compute}, {"mig", &d->mig},
        {"persistence", &d->persistence}, {"perf", &d->perf}, {"ecc", &d->ecc}, {"cpus", &d->cpus},
        {"clocks", &d->clocks}, {"energy", &d->energy}, {"stale", &d->stale}, {"accounting", &d->accounting}};
    if (!strcmp(key, "name")) snprintf(d->name, sizeof d->name, "%.95s", value);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key)) *numbers[i].field = strtol(value, NULL, 0);
}

static void add_gpus(int count) {
    for (gpus = 0; gpus < count && gpus < GPUS; gpus++) {
        Device d = &devices[gpus];
        *d = (struct device){.index = gpus, .instance = NONE, .name = "Tesla V100-SXM2-16GB", .total = 16160, .util = 0,
                             .temp = 41, .power = 36500, .limit = 300000, .fan = NONE, .mig = NONE, .persistence = 1,
                             .perf = 0, .ecc = 0, .cpus = NONE, .clocks = IDLE,
                             .energy = 7654321};
        snprintf(d->uuid, sizeof d->uuid, "GPU-%08x-5ca1-ab1e-0000-00000000da7a", 0xcafe0000u + gpus);
    }
}

static void add_instance(int gpu, long total, long used) {
    int at = instance_count[gpu]++;
    Device d = &instances[gpu][at];
    *d = (struct device){.index = gpu, .instance = at, .total = total, .used = used, .util = NONE, .temp = NONE,
                         .power = NONE, .limit = NONE, .fan = NONE, .mig = NONE, .perf = NONE, .ecc = NONE,
                         .compute = NONE, .persistence = NONE, .cpus = NONE, .clocks = NONE,
                         .energy = NONE};
    snprintf(d->name, sizeof d->name, "%.60s MIG", devices[gpu].name);
    snprintf(d->uuid, sizeof d->uuid, "MIG-%08x-5ca1-ab1e-%04d-00000000da7a", 0xcafe0000u + gpu, at);
    devices[gpu].mig = 1;
}

static void read_line(const char *line) {
    char which[64], key[64], value[128] = "", kind;
    struct fault f = {.gpu = NONE};
    struct process p = {.instance = NONE};
    struct sample s;
    struct account a;
    int gpu, count;
    long total, used;
    sscanf(line, "driver %79s", driver);
    sscanf(line, "cuda %d", &cuda);
    if (sscanf(line, "gpus %d", &count) == 1) add_gpus(count);
    if (sscanf(line, "mig %d %ld %ld", &gpu, &total, &used) == 3) add_instance(gpu, total, used);
    if (sscanf(line, "set %63s %63s %127[^\n]", which, key, value) == 3)
        for (int i = 0; i < gpus; i++)
            if (*which == '*' || atoi(which) == i) set(&devices[i], key, value);
    if (sscanf(line, "process %63s %c %u %ld", which, &kind, &p.pid, &p.mib) == 4) {
        sscanf(which, "%d:%d", &p.gpu, &p.instance);
        p.kind = kind;
        processes[process_count++] = p;
    }
    if (sscanf(line, "sample %d %u %llu %u", &s.gpu, &s.pid, &s.time, &s.sm) == 4) samples[sample_count++] = s;
    a.running = !strncmp(line, "accounted ", 10);
    if (sscanf(line, a.running ? "accounted %d %u %ld" : "ended %d %u %ld", &a.gpu, &a.pid, &a.mib) == 3)
        accounts[account_count++] = a;
    if (sscanf(line, "fault %63s %63s %d", f.call, which, &f.code) == 3 ||
        sscanf(line, "fault %63s %63s sleep %d", f.call, which, &f.seconds) == 3) {
        if (*which != '*') f.gpu = atoi(which);
        faults[fault_count++] = f;
    }
}

static FILE *scenario(void) {
    const char *path = getenv("NVML_STAND_IN");
    return path ? fopen(path, "r") : NULL;
}

static void read_scenario(void) {
    FILE *file = scenario();
    char line[256];
    gpus = process_count = sample_count = account_count = fault_count = 0;
    memset(instance_count, 0, sizeof instance_count);
    if (file) fstat(fileno(file), &last_read);
    while (file && fgets(line, sizeof line, file)) read_line(line);
    if (file) fclose(file);
}

static void start(void) { /* as NVML counts its starts: only the first one reads */
    pthread_mutex_lock(&reading);
    if (!started++) read_scenario();
    pthread_mutex_unlock(&reading);
}

static void read_again_if_replaced(void) {
    const char *path = getenv("NVML_STAND_IN");
    struct stat now;
    pthread_mutex_lock(&reading);
    if (path && !stat(path, &now) &&
        (now.st_ino != last_read.st_ino || now.st_size != last_read.st_size ||
         memcmp(&now.st_mtim, &last_read.st_mtim, sizeof now.st_mtim)))
        read_scenario();
    pthread_mutex_unlock(&reading);
}

static int fault(const char *call, int gpu) {
    for (int i = 0; i < fault_count; i++)
        if ((!strcmp(faults[i].call, call) || !strcmp(faults[i].call, "*")) &&
            (faults[i].gpu == NONE || faults[i].gpu == gpu)) {
            sleep(faults[i].seconds);
            return faults[i].code;
        }
    return OK;
}

/* ---- calls; every one looks for its fault first ---- */

#define ASK(gpu) { int code = fault(__func__, gpu); if (code) return code; }
#define NUMBER(call, type, field)                                                                          \
    int call(Device d, type *out) { ASK(d->index) if (d->field == NONE) return NOT_SUPPORTED; *out = d->field; return OK; }
#define TEXT(call, text)                                                                                   \
    int call(Device d, char *out, unsigned size) { ASK(d->index) snprintf(out, size, "%s", text); return OK; }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    start();
    int code = fault(__func__, NONE);
    if (code) started--;
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { if (started) started--; ASK(NONE) return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stand-in"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { ASK(NONE) snprintf(out, size, "%s", driver); return OK; }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { ASK(NONE) snprintf(out, size, "12.%s", driver); return OK; }
int nvmlSystemGetCudaDriverVersion(int *out) { ASK(NONE) *out = cuda; return OK; }
int nvmlDeviceGetCount_v2(unsigned *out) { read_again_if_replaced(); ASK(NONE) *out = gpus; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out) {
    ASK((int)index)
    if ((int)index >= gpus) return INVALID_ARGUMENT;
    *out = &devices[index];
    return OK;
}
int nvmlDeviceGetIndex(Device d, unsigned *out) { ASK(d->index) *out = d->index; return OK; }
TEXT(nvmlDeviceGetName, d->name)
TEXT(nvmlDeviceGetUUID, d->uuid)

int nvmlDeviceGetPciInfo_v3(Device d, Pci *out) {
    ASK(d->index)
    *out = (Pci){.bus = 0x1a + d->index};
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus);
    return OK;
}

int nvmlDeviceGetMemoryInfo(Device d, Memory *out) { /* v1: what the driver keeps for itself counts as used */
    ASK(d->index)
    if (d->total == NONE) return NOT_SUPPORTED;
    *out = (Memory){.total = MIB(d->total), .used = MIB(d->used + d->reserved), .free = MIB(d->total - d->used - d->reserved)};
    return OK;
}

NUMBER(nvmlDeviceGetPowerUsage, unsigned, power)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, limit)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, limit)
NUMBER(nvmlDeviceGetFanSpeed, unsigned, fan)
NUMBER(nvmlDeviceGetPerformanceState, int, perf)
NUMBER(nvmlDeviceGetComputeMode, int, compute)
NUMBER(nvmlDeviceGetPersistenceMode, int, persistence)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, u64, energy)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, clocks)
#ifndef R418
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, clocks)
#endif

int nvmlDeviceGetTemperature(Device d, int sensor, unsigned *out) {
    ASK(d->index)
    (void)sensor;
    if (d->temp == NONE) return NOT_SUPPORTED;
    *out = d->temp;
    return OK;
}
int nvmlDeviceGetUtilizationRates(Device d, Utilization *out) {
    ASK(d->index)
    if (d->util == NONE || d->mig == 1) return NOT_SUPPORTED; /* as NVML does where MIG is on */
    *out = (Utilization){d->util, d->util / 2};
    return OK;
}
int nvmlDeviceGetTotalEccErrors(Device d, int type, int counter, u64 *out) {
    ASK(d->index)
    (void)type, (void)counter;
    if (d->ecc == NONE) return NOT_SUPPORTED;
    *out = d->ecc;
    return OK;
}
int nvmlDeviceGetCpuAffinity(Device d, unsigned words, unsigned long *out) {
    ASK(d->index)
    if (d->cpus == NONE) return NOT_SUPPORTED;
    memset(out, 0, words * sizeof *out);
    *out = d->cpus;
    return OK;
}
int nvmlDeviceGetEncoderUtilization(Device d, unsigned *out, unsigned *period) {
    ASK(d->index)
    *out = 0, *period = 167000;
    return OK;
}
int nvmlDeviceGetDecoderUtilization(Device d, unsigned *out, unsigned *period) {
    return nvmlDeviceGetEncoderUtilization(d, out, period);
}

/* ---- processes: the older and the newer list differ only in the size of an entry ---- */

static int list(const char *call, Device d, char kind, unsigned *count, void *out, size_t entry) {
    int code = fault(call, d->index);
    unsigned found = 0, room = *count;
    if (code) return code;
    for (int i = 0; i < process_count; i++) {
        struct process *p = &processes[i];
        if (p->gpu != d->index || p->kind != kind || (d->instance != NONE && d->instance != p->instance)) continue;
        if (out && found < room) {
            ProcessInfo info = {p->pid, p->mib == NONE ? ~0ULL : MIB(p->mib), p->instance, p->instance == NONE ? NONE : 0};
            memcpy((char *)out + found * entry, &info, entry);
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}
int nvmlDeviceGetProcessUtilization(Device d, ProcessUtilization *out, unsigned *count, u64 since) {
    unsigned found = 0, room = *count;
    ASK(d->index)
    if (d->mig == 1 || d->instance != NONE) return NOT_SUPPORTED;
    for (int i = 0; i < sample_count; i++) {
        struct sample *s = &samples[i];
        if (s->gpu != d->index || (s->time <= since && !d->stale)) continue;
        if (out && found < room) out[found] = (ProcessUtilization){.pid = s->pid, .time = s->time, .sm = s->sm};
        found++;
    }
    *count = found;
    return !found ? NOT_FOUND : !out || found > room ? INSUFFICIENT_SIZE : OK;
}
int nvmlDeviceGetAccountingMode(Device d, int *out) { ASK(d->index) *out = d->accounting; return OK; }
int nvmlDeviceGetAccountingStats(Device d, unsigned pid, AccountingStats *out) {
    ASK(d->index)
    for (int i = 0; i < account_count; i++)
        if (accounts[i].gpu == d->index && accounts[i].pid == pid) {
            *out = (AccountingStats){
                .peak = accounts[i].mib == NONE ? ~0ULL : MIB(accounts[i].mib),
                .running = accounts[i].running,
            };
            return OK;
        }
    return NOT_FOUND;
}
#define LIST(call, kind, type) \
    int call(Device d, unsigned *count, type *out) { return list(__func__, d, kind, count, out, sizeof(type)); }

LIST(nvmlDeviceGetComputeRunningProcesses, 'C', ProcessInfo_v1)
LIST(nvmlDeviceGetGraphicsRunningProcesses, 'G', ProcessInfo_v1)

#ifndef R418
/* ---- events: a set is only a mark ---- */

static int events_told;

static int next_event(int *gpu, u64 *type, u64 *number) { /* of the events in the file, the first not told yet */
    FILE *file = scenario();
    char line[256];
    int seen = 0, found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        *number = 0;
        if (sscanf(line, "event %d xid %llu", gpu, number) != 2) continue;
        *type = XID;
        found = seen++ == events_told;
    }
    if (file) fclose(file);
    events_told += found;
    return found;
}

int nvmlEventSetCreate(void **set) { ASK(NONE) *set = &events_told; return OK; }
int nvmlEventSetFree(void *set) { (void)set; ASK(NONE) return OK; }
int nvmlDeviceGetSupportedEventTypes(Device d, u64 *out) {
    ASK(d->index)
    *out = d->ecc == NONE ? XID : XID | DOUBLE_BIT; /* as a device without ECC has it */
    return OK;
}
int nvmlDeviceRegisterEvents(Device d, u64 types, void *set) {
    ASK(d->index)
    (void)set;
    return types & ~(u64)(d->ecc == NONE ? XID : XID | DOUBLE_BIT) ? NOT_SUPPORTED : OK;
}
int nvmlEventSetWait_v2(void *set, Event *out, unsigned milliseconds) {
    (void)set;
    for (unsigned waited = 0;; waited += 50) {
        int gpu;
        u64 type, number;
        ASK(NONE)
        if (next_event(&gpu, &type, &number)) {
            *out = (Event){.device = &devices[gpu], .type = type, .data = number, .gpu_instance = NONE, .compute_instance = NONE};
            return OK;
        }
        if (waited >= milliseconds) return TIMEOUT;
        usleep(50000);
    }
}

LIST(nvmlDeviceGetComputeRunningProcesses_v3, 'C', ProcessInfo)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 'G', ProcessInfo)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'M', ProcessInfo)

int nvmlDeviceGetMemoryInfo_v2(Device d, Memory_v2 *out) {
    ASK(d->index)
    if (out->version != (sizeof *out | 2 << 24)) return ARGUMENT_VERSION_MISMATCH;
    if (d->total == NONE) return NOT_SUPPORTED;
    out->total = MIB(d->total), out->used = MIB(d->used), out->reserved = MIB(d->reserved);
    out->free = MIB(d->total - d->used - d->reserved);
    return OK;
}
int nvmlDeviceGetMigMode(Device d, unsigned *current, unsigned *pending) {
    ASK(d->index)
    if (d->mig == NONE) return NOT_SUPPORTED;
    *current = *pending = d->mig;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device d, unsigned *out) { ASK(d->index) *out = d->mig == NONE ? 0 : 7; return OK; }
int nvmlDeviceIsMigDeviceHandle(Device d, unsigned *out) { ASK(d->index) *out = d->instance != NONE; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device d, unsigned at, Device *out) {
    ASK(d->index)
    if ((int)at >= instance_count[d->index]) return NOT_FOUND;
    *out = &instances[d->index][at];
    return OK;
}
#endif

/* nvitop asks for these, and takes "not supported" for an answer. */
#define REFUSED(call) int call(Device d) { (void)d; return NOT_SUPPORTED; }
REFUSED(nvmlDeviceGetDriverModel)
REFUSED(nvmlDeviceGetDriverModel_v2)
REFUSED(nvmlDeviceGetTemperatureV)
REFUSED(nvmlDeviceGetGpuInstanceId)
REFUSED(nvmlDeviceGetComputeInstanceId)
REFUSED(nvmlDeviceGetSerial)
REFUSED(nvmlDeviceGetFieldValues)
REFUSED(nvmlDeviceGetClockInfo)
REFUSED(nvmlDeviceGetMaxClockInfo)
REFUSED(nvmlDeviceGetCudaComputeCapability)
REFUSED(nvmlDeviceGetPcieThroughput)
int nvmlDeviceGetBAR1MemoryInfo(Device d, Memory *out) { (void)d; *out = (Memory){MIB(256), MIB(254), MIB(2)}; return OK; }
int nvmlDeviceGetDisplayActive(Device d, int *out) { (void)d; *out = 0; return OK; }
