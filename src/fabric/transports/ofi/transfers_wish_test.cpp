#include "fabric/transports/ofi/transfers_wish.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

class ofi_transfers_wish_test : public testing::Test {
protected:
    void SetUp() override { TearDown(); }
    void TearDown() override {
        for (const char* name :
             {"FI_MR_CACHE_MAX_COUNT", "FI_CXI_MR_MATCH_EVENTS", "FI_CXI_OPTIMIZED_MRS"})
            ::unsetenv(name);
    }
    static ofi_transfers_wish of(const std::string& where) {
        return transfers_wish(uri::parse("ofi+" + where)).value();
    }
};

TEST_F(ofi_transfers_wish_test, device_is_used_once_its_library_lets_regions_close) {
    const ofi_transfers_wish before = of("verbs://10.0.0.1:0");
    EXPECT_FALSE(before.one_sided);
    EXPECT_EQ(before.why_packets,
              "as libfabric's \"verbs\" lets peers reach closed regions unless "
              "FI_MR_CACHE_MAX_COUNT=0 is set");
    ::setenv("FI_MR_CACHE_MAX_COUNT", "100", 1);
    EXPECT_FALSE(of("verbs://10.0.0.1:0").one_sided);
    ::setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
    EXPECT_TRUE(of("verbs://10.0.0.1:0").by_device);
    EXPECT_TRUE(of("verbs;ofi_rxm://10.0.0.1:0").one_sided);

    ::setenv("FI_CXI_MR_MATCH_EVENTS", "1", 1);
    EXPECT_FALSE(of("cxi://10.0.0.1:0").one_sided);
    ::setenv("FI_CXI_OPTIMIZED_MRS", "0", 1);
    EXPECT_TRUE(of("cxi://10.0.0.1:0").by_device);
}

TEST_F(ofi_transfers_wish_test, provider_with_software_in_it_is_used_only_if_that_is_asked_for) {
    for (const char* provider : {"tcp", "sockets", "efa", "psm3", "opx", "verbs;ofi_rxd"}) {
        EXPECT_FALSE(of(provider + std::string("://10.0.0.1:0")).one_sided) << provider;
        EXPECT_FALSE(checks_keys_in_device(provider)) << provider;
        const ofi_transfers_wish any = of(provider + std::string("://10.0.0.1:0?one_sided=any"));
        EXPECT_TRUE(any.one_sided && any.by_anybody && !any.by_device) << provider;
    }
}

TEST_F(ofi_transfers_wish_test, uri_may_ask_for_packets_or_for_the_kernel_whatever_the_device) {
    ::setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
    const ofi_transfers_wish none = of("verbs://10.0.0.1:0?one_sided=no");
    EXPECT_FALSE(none.one_sided || none.by_device || none.on_host);
    const ofi_transfers_wish kernel = of("verbs://10.0.0.1:0?one_sided=host");
    EXPECT_TRUE(kernel.on_host && !kernel.one_sided && !kernel.by_device);
}

TEST_F(ofi_transfers_wish_test, nothing_passes_a_device_beside_sealed_packets) {
    ::setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
    const uri verbs = uri::parse("ofi+verbs://10.0.0.1:0");
    EXPECT_TRUE(transfers_wish(verbs, false)->one_sided);
    const auto sealed = transfers_wish(verbs, true);
    EXPECT_FALSE(sealed->one_sided || sealed->by_device);
    EXPECT_EQ(sealed->why_packets,
              "as the device would not encrypt them; trusted_wire=yes says that it need not");
    EXPECT_EQ(transfers_wish(uri::parse("ofi+tcp://h:0?one_sided=any"), true).code(),
              errc::invalid);
    EXPECT_TRUE(transfers_wish(uri::parse("ofi+tcp://h:0?one_sided=host"), true)->on_host);
}

}  // namespace
}  // namespace amalgam::detail
