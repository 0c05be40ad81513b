#include "directory/queries/remote_searches.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

class remote_searches_test : public testing::Test {
protected:
    remote_searches_test() {
        all.own_range(1);
        const resource_id whose = all.open({});
        for (int i = 0; i < 3; ++i)
            all.add(whose, attribute_list{{"type", "x"}});
    }
    static clock::time_point at(int seconds) {
        return clock::time_point{} + std::chrono::seconds(seconds);
    }
    static attribute_list query(std::size_t bytes = 0) {
        attribute_list what{{"type", "x"}};
        if (bytes != 0) what.ask(std::string(bytes, 'n'), 0);
        return what;
    }
    using outcome = store_search::outcome;

    registry all{{}, [](watched_change&&) {}};
    found_values got;
};

TEST_F(remote_searches_test, a_search_goes_on_until_it_is_over_or_stopped) {
    remote_searches remote(all);
    const std::uint64_t one = remote.keep(all.make_search(query()), at(0));
    const std::uint64_t two = remote.keep(all.make_search(query()), at(0));
    EXPECT_NE(one, two);
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(remote.next(one, 100, at(0), got), outcome::found);
    EXPECT_EQ(remote.next(two, 1, at(0), got), outcome::found);
    EXPECT_EQ(remote.next(one, 100, at(0), got), outcome::over);
    EXPECT_FALSE(remote.has(one));
    EXPECT_EQ(remote.next(one, 100, at(0), got), outcome::over);
    EXPECT_TRUE(remote.has(two));
    remote.stop(two);
    remote.stop(two);
    EXPECT_EQ(remote.size(), 0u);
}

TEST_F(remote_searches_test, what_nobody_asks_for_any_more_is_dropped) {
    remote_searches remote(all, {.idle_limit = 10s});
    const std::uint64_t asked = remote.keep(all.make_search(query()), at(0));
    const std::uint64_t left = remote.keep(all.make_search(query()), at(0));
    EXPECT_EQ(remote.next(asked, 100, at(8), got), outcome::found);
    (void)remote.keep(all.make_search(query()), at(11));
    EXPECT_TRUE(remote.has(asked));
    EXPECT_FALSE(remote.has(left));
}

TEST_F(remote_searches_test, of_too_many_those_that_were_asked_the_longest_ago_go) {
    remote_searches remote(all, {.searches = 2});
    const std::uint64_t one = remote.keep(all.make_search(query()), at(0));
    const std::uint64_t two = remote.keep(all.make_search(query()), at(1));
    EXPECT_EQ(remote.next(one, 100, at(2), got), outcome::found);
    const std::uint64_t three = remote.keep(all.make_search(query()), at(3));
    EXPECT_TRUE(remote.has(one) && remote.has(three));
    EXPECT_FALSE(remote.has(two));
    EXPECT_EQ(remote.size(), 2u);
}

TEST_F(remote_searches_test, their_queries_take_so_many_bytes_and_give_them_back) {
    const std::size_t bytes = query(200).bytes().size();
    remote_searches remote(all, {.bytes = 2 * bytes});
    std::vector<std::uint64_t> numbers;
    for (int i = 0; i < 3; ++i)
        numbers.push_back(remote.keep(all.make_search(query(200)), at(i)));
    EXPECT_EQ(remote.size(), 3u) << "the next one sees that it is too much";
    numbers.push_back(remote.keep(all.make_search(query(200)), at(3)));
    EXPECT_FALSE(remote.has(numbers[0]));
    EXPECT_EQ(remote.size(), 3u);
    // Each search that ends frees a slot, however it ends.
    for (int i = 4; i < 10; ++i) {
        remote.stop(numbers.back());
        numbers.back() = remote.keep(all.make_search(query(200)), at(i));
        EXPECT_EQ(remote.size(), 3u) << i;
        EXPECT_TRUE(remote.has(numbers[1]) && remote.has(numbers[2]));
    }
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(remote.next(numbers[2], 100, at(20), got), outcome::found);
    EXPECT_EQ(remote.next(numbers[2], 100, at(20), got), outcome::over);
    (void)remote.keep(all.make_search(query(200)), at(21));
    EXPECT_TRUE(remote.has(numbers[1]) && remote.has(numbers.back()));
}

}  // namespace
}  // namespace amalgam::detail
