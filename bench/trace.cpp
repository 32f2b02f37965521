// A library that the CUDA driver loads into a program (CUDA_INJECTION64_PATH): writes a line for each kernel, copy and clearing of memory on the GPU to
// the file $TRACE, with its start and end in nanoseconds and its name. `bench/profile` builds and reads it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cupti.h>
#include <initializer_list>

static FILE *out;

static void line(uint64_t start, uint64_t end, const char *name, uint64_t bytes) {
    if (out) fprintf(out, "%llu\t%llu\t%s %llu\n", (unsigned long long)start, (unsigned long long)end, name, (unsigned long long)bytes);
}

static void CUPTIAPI request(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 8 << 20, *records = 0;
    *buffer = (uint8_t *)aligned_alloc(8, *size);
}

static void CUPTIAPI complete(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    CUpti_Activity *record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            auto *kernel = (CUpti_ActivityKernel9 *)record;
            line(kernel->start, kernel->end, kernel->name, (uint64_t)kernel->gridX * kernel->gridY * kernel->gridZ);
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
            auto *clearing = (CUpti_ActivityMemset4 *)record;
            line(clearing->start, clearing->end, "memset", clearing->bytes);
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
            auto *copy = (CUpti_ActivityMemcpy6 *)record;
            line(copy->start, copy->end, "memcpy", copy->bytes);
        }
    }
    free(buffer);
}

static void finish() {
    cuptiActivityFlushAll(1);
    if (out) fclose(out);
}

extern "C" int InitializeInjection() {
    const char *path = getenv("TRACE");
    out = path ? fopen(path, "w") : nullptr;
    cuptiActivityRegisterCallbacks(request, complete);
    for (auto kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMCPY}) cuptiActivityEnable(kind);
    atexit(finish);
    return 1;
}
