#include "directory/resources/registry.hpp"

#include <gtest/gtest.h>

#include "thrown.hpp"

namespace amalgam::detail {
namespace {

class registry_test : public testing::Test {
protected:
    registry_test() { all.own_range(1); }

    registry all{{.contexts = 2, .bytes = 1000}, [](watched_change&&) {}};
};

TEST_F(registry_test, servers_that_watch_take_no_place_of_a_context) {
    const resource_id watcher = all.open_watcher();
    all.open_watcher();
    EXPECT_EQ(code_of([&] { all.open_watcher(); }), errc::overloaded);
    all.open({});
    all.open({});
    EXPECT_EQ(code_of([&] { all.open({}); }), errc::overloaded);
    EXPECT_EQ(all.contexts(), 2u);
    all.close(watcher);
    all.open_watcher();
    EXPECT_EQ(all.contexts(), 2u);
}

TEST_F(registry_test, what_a_context_asks_for_counts_as_what_it_has) {
    const resource_id whose = all.open({});
    const attribute_list large{{"x", std::string(500, 'x')}};
    const auto begin_search = [&] { all.start_search(whose, large); };
    const auto watch = [&] { all.watch(whose, 1, large); };
    const auto add = [&] { all.add(whose, large); };
    const std::uint32_t search = all.start_search(whose, large);
    for (const errc each : {code_of(begin_search), code_of(watch), code_of(add)})
        EXPECT_EQ(each, errc::overloaded);
    for (int i = 0; i < 2; ++i)
        all.stop_search(whose, search);
    for (int i = 0; i < 3; ++i) {  // An empty list has bytes, too, which are released with it.
        all.stop_search(whose, all.start_search(whose, {}));
        watch();
        EXPECT_EQ(code_of(begin_search), errc::overloaded);
        all.unwatch(whose, 1);
        all.remove(whose, all.add(whose, large));
    }
    add();
    EXPECT_EQ(code_of(watch), errc::overloaded);
}

}  // namespace
}  // namespace amalgam::detail
