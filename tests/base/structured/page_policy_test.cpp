// needs: none. Digests that policies of pages name.
#include "base/structured/page_policy.h"

#include <gtest/gtest.h>

namespace lumen {
namespace {

TEST(PagePolicy, DigestsWhatAnElementHolds) {
  // Of "abc", as in FIPS 180-2, appendix B.1.
  const std::string abc = "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='";
  EXPECT_EQ(policy_digest("<p><script type=\"x\">no</script><script>abc</script>", "script"), abc);
  EXPECT_EQ(policy_digest("<style>abc</style><style>d</style>", "style"), abc);
}

}  // namespace
}  // namespace lumen
