// Peers and ceilings that could not be built here: listed, and skipped with the reason.
#include "common/launch/registry.h"

#include "common/launch/problem.h"

namespace fa {
namespace {

#ifdef FA_WITHOUT_CUDNN
const bool without_cudnn = [] {
  register_kernel({"peer/cudnn_frontend",
                   {},
                   nullptr,
                   [](const Problem&, const Tensors&) { throw Unsupported(FA_WITHOUT_CUDNN); },
                   nullptr,
                   nullptr,
                   nullptr,
                   Traits::kPlain,
                   kEveryProblem});
  return true;
}();
#endif

#ifdef FA_WITHOUT_COPY
const bool without_copy = [] {
  register_kernel({"ceiling/copy", {}, nullptr, [](const Problem&, const Tensors&) {
                     throw Unsupported(FA_WITHOUT_COPY);
                   }});
  return true;
}();
#endif

}  // namespace
}  // namespace fa
