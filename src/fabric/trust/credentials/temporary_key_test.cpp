#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/fabric/temporary_key.hpp>

namespace amalgam {
namespace {

TEST(temporary_key, is_what_its_credentials_prove_under_its_name) {
    const temporary_key one("G2.1"), other("G2.1");
    EXPECT_NE(one.fingerprint(), other.fingerprint());
    const identity self = one.trusting({other.fingerprint()})->self();
    EXPECT_EQ(self.name, "G2.1");
    EXPECT_EQ(self.key, one.fingerprint());
}

TEST(temporary_key, any_name_will_do) {
    const auto named = [](std::string_view name) {
        const temporary_key key(name);
        return key.trusting({key.fingerprint()})->self().name;
    };
    EXPECT_EQ(named(""), "_");
    EXPECT_EQ(named("a b/\n\xc3\xa9-9"), "a_b____-9");
    EXPECT_EQ(named(std::string(1000, 'x')), std::string(64, 'x'));
}

TEST(temporary_key, that_trusts_nobody_is_refused) {
    const temporary_key key("lonely");
    EXPECT_THROW((void)key.trusting({}), error);
}

}  // namespace
}  // namespace amalgam
