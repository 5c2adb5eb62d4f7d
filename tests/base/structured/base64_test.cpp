// Needs: none. Base64: the vectors of RFC 4648, there and back, and what is none.
#include "base/structured/base64.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lumen {
namespace {

TEST(Base64, VectorsOfItsDefinition) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(encode_base64(bytes), text);
    EXPECT_EQ(decode_base64(text, "here"), bytes);
  }
}

TEST(Base64, EveryByteThereAndBack) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += char(i);
  EXPECT_EQ(decode_base64(encode_base64(all), "here"), all);
  EXPECT_THROW((void)decode_base64("Zm9*", "here"), Error);
}

}  // namespace
}  // namespace lumen
