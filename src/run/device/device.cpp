#include "run/device/device.h"

#include "base/error.h"

namespace lumen::run {

std::string Device::open_products() {
  throw usage_error("libraries of vendors multiply on GPUs alone; this is {}", describe());
}

}  // namespace lumen::run
