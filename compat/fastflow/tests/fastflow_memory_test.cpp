// Nodes whose threads get no memory, at any of their allocations.
#include <new>
#include <optional>
#include <vector>

#include <ff/ff.hpp>
#include <gtest/gtest.h>

#include "memory/memory.hpp"

using namespace ff;
using amalgam::memory::failing;

namespace {

long item = 0;

/// Sends `count` items. The n-th allocation of its thread in a stream fails.
template <typename Base>
struct source : Base {
    source(long how_many, std::uint64_t the_allocation) : count(how_many), n(the_allocation) {}
    int svc_init() override { return fails.emplace(n), 0; }
    long* svc(long*) override {
        for (long i = 0; i != count; ++i)
            this->ff_send_out(&item);
        return this->EOS;
    }
    long count;
    std::uint64_t n;
    std::optional<failing> fails;
};
template <typename Base>
struct sink : Base {
    long* svc(long*) override {
        ++got;
        return this->GO_ON;
    }
    long got = 0;
};
struct passing : ff_node_t<long> {
    long* svc(long* what) override { return what; }
};

/// All comes, or the run fails; it ends, anyway. False: no more allocations fail.
template <typename Source, typename Sink>
bool run(const Source& first, const Sink& last, ff_pipeline& whole) {
    testing::internal::CaptureStderr();
    const int result = whole.run_and_wait_end();
    const std::string said = testing::internal::GetCapturedStderr();
    if (result == 0) {
        EXPECT_EQ(last.got, first.count);
    } else {
        EXPECT_LT(last.got, first.count);
        EXPECT_NE(said.find("bad_alloc"), std::string::npos) << said;
    }
    return result != 0;
}

// 512 items fill what a queue gets at a time: the memory is for an item, or for the end.
constexpr long counts[] = {510, 511, 512, 1500};

TEST(fastflow_memory, that_a_node_lacks_loses_no_end) {
    for (const long count : counts) {
        bool failed = true;
        for (std::uint64_t n = 1; failed || n < 5; ++n) {
            source<ff_node_t<long>> first(count, n);
            sink<ff_node_t<long>> last;
            ff_Pipe<> whole(first, last);
            failed = run(first, last, whole);
        }
    }
}

/// Sends all numbers, each again until there is memory for it.
struct stubborn : ff_monode_t<long> {
    stubborn(std::vector<long>& which, std::uint64_t n, std::uint64_t how_many)
        : numbers(which), first(n), count(how_many) {}
    long* svc(long*) override {
        const failing these(first, count);
        for (long& each : numbers)
            while (!sent(each))
                continue;
        struck = failing::struck();
        return EOS;
    }
    bool sent(long& number) {
        try {
            return ff_send_out(&number);
        } catch (const std::bad_alloc&) {
            return false;
        }
    }
    std::vector<long>& numbers;
    const std::uint64_t first, count;
    bool struck = false;
};
/// Counts those that do not come in their order.
struct in_order : ff_node_t<long> {
    long* svc(long* number) override {
        if (*number != next) ++wrong;
        next = *number + 1;
        return GO_ON;
    }
    long next = 0, wrong = 0;
};

TEST(fastflow_memory, that_an_emitter_lacks_and_asks_for_again_keeps_an_ordered_farm_s_order) {
    std::vector<long> numbers(3000);
    for (std::size_t i = 0; i != numbers.size(); ++i)
        numbers[i] = static_cast<long>(i);
    for (const std::uint64_t how_many : {1, 2, 3}) {
        bool struck = true;
        for (std::uint64_t n = 1; struck; ++n) {
            stubborn first(numbers, n, how_many);
            passing left, right;
            in_order last;
            ff_farm farm;
            farm.add_emitter(&first);
            farm.add_workers({&left, &right});
            farm.add_collector(&last);
            farm.set_ordered();
            EXPECT_EQ(farm.run_and_wait_end(), 0);
            EXPECT_EQ(last.next, static_cast<long>(numbers.size()));
            EXPECT_EQ(last.wrong, 0) << "allocation " << n << ", " << how_many << " failed";
            struck = first.struck;
        }
    }
}

TEST(fastflow_memory, that_an_emitter_lacks_loses_no_end) {
    for (const bool ordered : {false, true}) {
        for (const long count : counts) {
            bool failed = true;
            for (std::uint64_t n = 1; failed || n < 5; ++n) {
                source<ff_monode_t<long>> first(2 * count, n);
                sink<ff_node_t<long>> last;
                passing left, right;
                ff_farm farm;
                farm.add_emitter(&first);
                farm.add_workers({&left, &right});
                farm.add_collector(nullptr);
                if (ordered) farm.set_ordered();
                ff_pipeline whole;
                whole.add_stage(&farm);
                whole.add_stage(&last);
                failed = run(first, last, whole);
            }
        }
    }
}

}  // namespace
