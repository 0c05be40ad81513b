#include "conformance/transport_suite.hpp"
#include "fabric/packets/introduced_garbage.hpp"

namespace amalgam::detail {
namespace {

const bool described =
    conformance::describe_transport("ucx+tcp", {.send_garbage = &send_wrong_introduction});

INSTANTIATE_TEST_SUITE_P(ucx, transport_suite,
                         testing::Values("ucx+tcp://127.0.0.1:0", "ucx+shm://127.0.0.1:0"));

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

std::string refusal(const std::string& where) {
    auto opened = transport_registry::installed().open(where);
    return opened ? "opened" : opened.sentence();
}

TEST(ucx_transport, protocol_that_the_machine_lacks_is_refused_with_those_it_has) {
    const std::string told = refusal("ucx+gdr_copy://127.0.0.1:0");
    EXPECT_TRUE(contains(told,
                         "uri \"ucx+gdr_copy://127.0.0.1:0\": UCX finds no device for "
                         "\"gdr_copy\" on this machine; it has: all, shm, "))
        << told;
    EXPECT_TRUE(contains(told, "tcp; example: ucx+tcp://127.0.0.1:0")) << told;
}

TEST(ucx_transport, device_that_the_machine_lacks_is_refused_with_those_it_has) {
    const std::string told = refusal("ucx+tcp://mlx77/127.0.0.1:0");
    EXPECT_TRUE(contains(told, "UCX has no device \"mlx77\" here; it has: ")) << told;
}

TEST(ucx_transport, address_that_is_not_ours_is_refused) {
    const std::string told = refusal("ucx+tcp://192.0.2.1:0");
    EXPECT_TRUE(contains(told, "192.0.2.1 is not an address of this machine")) << told;
}

TEST(ucx_transport, address_of_another_kind_is_refused_by_lookup) {
    auto here = transport_registry::installed().open("ucx+tcp://127.0.0.1:0").value();
    for (const char* wrong : {"tcp://127.0.0.1:7000", "ucx+shm://127.0.0.1:7000", "ucx+tcp://h",
                              "ucx+tcp://lo/127.0.0.1:7000", "ucx+tcp://127.0.0.1:7000?a=b"}) {
        auto found = here->lookup(wrong);
        EXPECT_EQ(found.code(), errc::invalid) << wrong;
        EXPECT_TRUE(contains(found.sentence(), "example: ucx+tcp://127.0.0.1:7000"))
            << found.sentence();
    }
}

TEST(ucx_transport, interface_that_is_asked_for_is_the_one_that_ucx_uses) {
    auto here = transport_registry::installed().open("ucx+tcp://lo:0").value();
    EXPECT_TRUE(contains(here->explain(), "by lo only")) << here->explain();
    EXPECT_TRUE(here->address().starts_with("ucx+tcp://127.0.0.1:")) << here->address();
}

}  // namespace
}  // namespace amalgam::detail
