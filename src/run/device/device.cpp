#include "run/device/device.h"

#include "base/error.h"

namespace lumen::run {

std::string Device::open_products() {
  throw usage_error("vendors' libraries multiply only on GPUs; this is {}", describe());
}

}  // namespace lumen::run
