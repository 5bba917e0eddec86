// What this library is made of, for whoever wants to know.
#include <map>
#include <string>

#include "dnnl.h"

namespace {

std::string described() {
  const std::map<int, std::string> names = {
      {dnnl_cpu_isa_sse41, "SSE 4.1"},
      {dnnl_cpu_isa_avx, "AVX"},
      {dnnl_cpu_isa_avx2, "AVX2"},
      {dnnl_cpu_isa_avx2_vnni, "AVX2 VNNI"},
      {dnnl_cpu_isa_avx2_vnni_2, "AVX2 VNNI 2"},
      {dnnl_cpu_isa_avx512_core, "AVX-512"},
      {dnnl_cpu_isa_avx512_core_vnni, "AVX-512 VNNI"},
      {dnnl_cpu_isa_avx512_core_bf16, "AVX-512 BF16"},
      {dnnl_cpu_isa_avx512_core_fp16, "AVX-512 FP16"},
      {dnnl_cpu_isa_avx512_core_amx, "AMX"},
      {dnnl_cpu_isa_avx512_core_amx_fp16, "AMX FP16"},
  };
  const dnnl_version_t* version = dnnl_version();
  const auto isa = names.find(dnnl_get_effective_cpu_isa());
  const std::string text = "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
                           std::to_string(version->patch);
  return isa == names.end() ? text : text + " with " + isa->second;
}

}  // namespace

// The version of oneDNN and the instructions it uses.
extern "C" const char* openipu_native_description() {
  static const std::string text = described();
  return text.c_str();
}

// Whether oneDNN shares work out by OpenMP, as our own kernels do.
extern "C" int openipu_native_uses_openmp() { return dnnl_version()->cpu_runtime == DNNL_RUNTIME_OMP; }
