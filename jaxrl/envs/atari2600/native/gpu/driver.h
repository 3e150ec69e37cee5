// The few functions of the CUDA driver that the emulator calls: declared here and found in
// libcuda.so.1 when the first of them is needed, so that the machine's C++ compiler alone builds
// what calls them.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <string>

#include "xla/ffi/api/ffi.h"

namespace jaxrl {

using DriverHandle = struct Opaque*;  // a context, a stream, a module or a kernel of the driver
constexpr int kMultiprocessors = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kSharedShare = 9;  // CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, in percent
constexpr unsigned kForAllContexts = 1;  // CU_MEMHOSTREGISTER_PORTABLE

struct Driver {
  int (*init)(unsigned flags);
  int (*retain_context)(DriverHandle* context, int device);
  int (*release_context)(int device);
  int (*stream_context)(DriverHandle stream, DriverHandle* context);
  int (*push_context)(DriverHandle context);
  int (*pop_context)(DriverHandle* context);
  int (*wait_for_context)();
  int (*context_device)(int* device);
  int (*device_attribute)(int* value, int attribute, int device);
  int (*load_module)(DriverHandle* module, const void* image);
  int (*find_kernel)(DriverHandle* kernel, DriverHandle module, const char* name);
  int (*set_attribute)(DriverHandle kernel, int attribute, int value);
  int (*set_words)(void* to, unsigned word, size_t count, DriverHandle stream);
  int (*launch)(DriverHandle kernel, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                DriverHandle stream, void** arguments, void** extra);
  int (*pin)(void* memory, size_t bytes, unsigned flags);
  int (*unpin)(void* memory);
  int (*copy_to_host)(void* to, const void* from, size_t bytes, DriverHandle stream);
  int (*copy_to_device)(void* to, const void* from, size_t bytes, DriverHandle stream);
  int (*call_on_host)(DriverHandle stream, void (*function)(void*), void* argument);
  int (*error_name)(int error, const char** name);
  std::string missing;  // why there is no driver

  template <typename Function>
  void find(void* library, const char* name, Function& function) {
    function = (Function)dlsym(library, name);
    if (!function) missing = std::string("the CUDA driver has no ") + name;
  }

  explicit Driver(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      missing = dlerror();
      return;
    }
    find(library, "cuInit", init);
    find(library, "cuDevicePrimaryCtxRetain", retain_context);
    find(library, "cuDevicePrimaryCtxRelease_v2", release_context);
    find(library, "cuStreamGetCtx", stream_context);
    find(library, "cuCtxPushCurrent_v2", push_context);
    find(library, "cuCtxPopCurrent_v2", pop_context);
    find(library, "cuCtxSynchronize", wait_for_context);
    find(library, "cuCtxGetDevice", context_device);
    find(library, "cuDeviceGetAttribute", device_attribute);
    find(library, "cuModuleLoadData", load_module);
    find(library, "cuModuleGetFunction", find_kernel);
    find(library, "cuFuncSetAttribute", set_attribute);
    find(library, "cuMemsetD32Async", set_words);
    find(library, "cuLaunchKernel", launch);
    find(library, "cuMemHostRegister_v2", pin);
    find(library, "cuMemHostUnregister", unpin);
    find(library, "cuMemcpyDtoHAsync_v2", copy_to_host);
    find(library, "cuMemcpyHtoDAsync_v2", copy_to_device);
    find(library, "cuLaunchHostFunc", call_on_host);
    find(library, "cuGetErrorName", error_name);
  }
};

// Tests name a driver of their own.
inline const Driver& driver() {
  static const char* const named = getenv("JAXRL_LIBCUDA");
  static const Driver& found = *new Driver(named ? named : "libcuda.so.1");
  return found;
}

// What a function of the driver says of its failure.
inline std::string message_of(const char* what, int error) {
  const char* name = nullptr;
  driver().error_name(error, &name);
  return std::string(what) + ": " + (name ? name : std::to_string(error).c_str());
}

inline xla::ffi::Error failed(const char* what, int error, const std::string& remedy = "") {
  return xla::ffi::Error::Internal("the emulator on a GPU: " + message_of(what, error) + remedy);
}

// Calls `work(context)` while the context of a stream is current; returns its error.
template <typename Work>
xla::ffi::Error in_context_of(DriverHandle stream, Work work) {
  if (!driver().missing.empty()) return xla::ffi::Error::Internal(driver().missing);
  DriverHandle context, popped;
  if (const int error = driver().stream_context(stream, &context))
    return failed("cuStreamGetCtx", error);
  if (const int error = driver().push_context(context)) return failed("cuCtxPushCurrent", error);
  const xla::ffi::Error result = work(context);
  if (const int error = driver().pop_context(&popped)) return failed("cuCtxPopCurrent", error);
  return result;
}

}  // namespace jaxrl
