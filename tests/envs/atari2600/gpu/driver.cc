// A stand-in for the CUDA driver, which runs the emulator's own kernels on a CPU: what a test lets
// the engine load in place of libcuda.so.1. It knows the calls that the engine makes, and refuses
// what a driver would.
#define JAXRL_GPU 1
#include "shim.h"

#include "gpu/kernels.cu"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kNotFound = 500;
constexpr int kComputeMajor = 75, kMultiprocessors = 16;
constexpr char kStandIn[] = "stand-in";

int context, module_;
thread_local bool is_current = false;
std::mutex one_at_a_time;  // fibers are those of one kernel
int num_multiprocessors = 1, num_devices = 1;
const char* const kKernels[] = {"jaxrl_step", "jaxrl_draw", "jaxrl_again"};
u64 launches[3];
u64 most_again;                      // rows that one launch of jaxrl_again had
std::map<const u8*, size_t> pinned;  // the memory that devices may copy by themselves
u64 num_copied;                      // bytes
u64 num_waits;                       // for the device
bool pins = true, works = true;

bool is_pinned(const void* memory, size_t bytes) {
  const auto* const first = (const u8*)memory;
  for (const auto& [from, size] : pinned)
    if (first >= from && first + bytes <= from + size) return true;
  return false;
}

int copy(void* to, const void* from, const void* on_host, size_t bytes) {
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  if (!is_current) return kInvalidContext;
  if (!is_pinned(on_host, bytes)) return kInvalidValue;
  memcpy(to, from, bytes);
  num_copied += bytes;
  return kSuccess;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// For tests: how many multiprocessors a device has, how many devices there are, how often each
// kernel was launched, and how many rows at most were listed for the last since it was asked
// before.
EXPORTED void standin_set_devices(int number) { num_devices = number; }
EXPORTED void standin_set_multiprocessors(int number) { num_multiprocessors = number; }
EXPORTED u64 standin_most_again() {
  const u64 most = most_again;
  most_again = 0;
  return most;
}
EXPORTED u64 standin_launches(int kernel) { return launches[kernel]; }
// How many bytes were copied from and to pinned memory, in how many places some is pinned, and
// whether more can be.
EXPORTED u64 standin_copied() { return num_copied; }
EXPORTED u64 standin_pinned() { return pinned.size(); }
EXPORTED void standin_set_pins(bool value) { pins = value; }
// How often somebody waited for the device, and whether it works.
EXPORTED u64 standin_waits() { return num_waits; }
EXPORTED void standin_set_works(bool value) { works = value; }

EXPORTED int cuInit(unsigned) { return kSuccess; }
EXPORTED int cuDriverGetVersion(int* version) {
  *version = 12080;
  return kSuccess;
}
EXPORTED int cuDeviceGetCount(int* count) {
  *count = num_devices;
  return kSuccess;
}
EXPORTED int cuDeviceGet(int* device, int number) {
  *device = number;
  return kSuccess;
}
EXPORTED int cuDevicePrimaryCtxRetain(void** retained, int) {
  *retained = &context;
  return kSuccess;
}
EXPORTED int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
EXPORTED int cuStreamGetCtx(void*, void** current) {
  *current = &context;
  return kSuccess;
}
EXPORTED int cuCtxPushCurrent_v2(void* pushed) {
  is_current = pushed == &context;
  return is_current ? kSuccess : kInvalidContext;
}
EXPORTED int cuCtxPopCurrent_v2(void** popped) {
  *popped = &context;
  is_current = false;
  return kSuccess;
}
EXPORTED int cuCtxSynchronize() {
  num_waits++;
  return is_current && works ? kSuccess : kInvalidContext;
}
EXPORTED int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  if (!is_current) return kInvalidContext;
  if (!pins || is_pinned(memory, 1)) return kInvalidValue;
  pinned[(const u8*)memory] = bytes;
  return kSuccess;
}
EXPORTED int cuMemHostUnregister(void* memory) {
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  if (!is_current) return kInvalidContext;
  return pinned.erase((const u8*)memory) ? kSuccess : kInvalidValue;
}
// Its streams are never behind: what is put on one is done at once.
EXPORTED int cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t bytes, void*) {
  return copy(to, from, to, bytes);
}
EXPORTED int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, void*) {
  return copy(to, from, from, bytes);
}
EXPORTED int cuLaunchHostFunc(void*, void (*function)(void*), void* argument) {
  if (!is_current) return kInvalidContext;
  function(argument);
  return kSuccess;
}
EXPORTED int cuCtxGetDevice(int* device) {
  *device = 0;
  return is_current ? kSuccess : kInvalidContext;
}
EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const int major = device ? 8 : 9;  // a second device is an older one
  *value = attribute == kMultiprocessors ? num_multiprocessors
           : attribute == kComputeMajor  ? major
                                         : 0;
  return kSuccess;
}
EXPORTED int cuModuleLoadData(void** loaded, const void* image) {
  if (!is_current) return kInvalidContext;
  *loaded = &module_;
  return memcmp(image, kStandIn, sizeof kStandIn - 1) ? kInvalidValue : kSuccess;
}
EXPORTED int cuModuleGetFunction(const void** kernel, void* of, const char* name) {
  if (of != &module_) return kInvalidValue;
  for (const char* const& known : kKernels)
    if (!strcmp(known, name)) {
      *kernel = &known;
      return kSuccess;
    }
  return kNotFound;
}
// As a driver that is too old for it.
EXPORTED int cuFuncSetAttribute(const void*, int, int) { return kInvalidValue; }
EXPORTED int cuMemsetD32Async(unsigned* to, unsigned word, size_t count, void*) {
  if (!is_current) return kInvalidContext;
  std::fill(to, to + count, word);
  return kSuccess;
}
EXPORTED int cuLaunchKernel(const void* kernel, unsigned blocks_x, unsigned blocks_y,
                            unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                            unsigned threads_z, unsigned shared_bytes, void*, void** arguments,
                            void** extra) {
  if (!is_current) return kInvalidContext;
  const u64 volume = (u64)blocks_x * threads_x * shared_bytes;
  if (!blocks_x || !threads_x || threads_x > 1024 || volume || extra) return kInvalidValue;
  if (blocks_y * blocks_z * threads_y * threads_z != 1) return kInvalidValue;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  const Launch launch = *(const Launch*)arguments[0];
  const auto number = (const char* const*)kernel - kKernels;
  launches[number]++;
  if (number == 2) most_again = std::max<u64>(most_again, launch.again[0]);
  if (number == 0) shim::run(blocks_x, threads_x, [=] { jaxrl_step(launch); });
  if (number == 1) shim::run(blocks_x, threads_x, [=] { jaxrl_draw(launch); });
  if (number == 2) shim::run(blocks_x, threads_x, [=] { jaxrl_again(launch); });
  return kSuccess;
}
EXPORTED int cuGetErrorName(int error, const char** name) {
  *name = error == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT"
          : error == kInvalidValue ? "CUDA_ERROR_INVALID_VALUE"
          : error == kNotFound     ? "CUDA_ERROR_NOT_FOUND"
                                   : "CUDA_SUCCESS";
  return kSuccess;
}
