// Queues of providers that take FI_WAIT_POLLFD and then tell more or fewer descriptors: a fabric
// and a domain made of their tables.
#include "fabric/transports/ofi/completion_queue.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

/// Tells `told` of what it has been asked for.
struct made_up_provider {
    fid_fabric fabric{};  // First.
    fid_domain domain{};
    fid_cq queue{};
    fi_ops ops{};
    fi_ops_fabric of_fabric{};
    fi_ops_domain of_domain{};
    std::vector<pollfd> told;
    std::vector<pollfd> after_trywait;  ///< Told from then on.
    bool has_something = false;
    std::size_t live = 0;

    made_up_provider() {
        ops.size = sizeof ops;
        ops.close = &close;
        ops.control = &control;
        of_fabric.size = sizeof of_fabric;
        of_fabric.trywait = &try_wait;
        of_domain.size = sizeof of_domain;
        of_domain.cq_open = &open;
        fabric.ops = &of_fabric;
        domain.ops = &of_domain;
        domain.fid.context = this;
        queue.fid.ops = &ops;
        queue.fid.context = this;
    }

    static int open(fid_domain* by, fi_cq_attr*, fid_cq** made, void*) {
        auto& self = *static_cast<made_up_provider*>(by->fid.context);
        ++self.live;
        *made = &self.queue;
        return 0;
    }
    static int close(fid* which) {
        --static_cast<made_up_provider*>(which->context)->live;
        return 0;
    }
    static int try_wait(fid_fabric* by, fid**, int) {
        auto& self = *reinterpret_cast<made_up_provider*>(by);
        if (self.has_something) return -FI_EAGAIN;
        if (!self.after_trywait.empty()) self.told = self.after_trywait;
        return 0;
    }
    static int control(fid* which, int, void* into) {
        auto& self = *static_cast<made_up_provider*>(which->context);
        auto& list = *static_cast<fi_wait_pollfd*>(into);
        const bool fits = list.nfds >= self.told.size();
        if (fits) std::copy(self.told.begin(), self.told.end(), list.fd);
        list.nfds = self.told.size();
        return fits ? 0 : -FI_ETOOSMALL;
    }
};

constexpr pollfd of_its_own{70, POLLIN, 0};

TEST(ofi_queue, provider_that_tells_only_a_descriptor_of_its_own_has_none_for_few) {
    made_up_provider provider;
    provider.told = {of_its_own};
    ofi_queue queue;
    EXPECT_FALSE(queue.open_for_few(&provider.fabric, &provider.domain, 64));
    EXPECT_FALSE(queue);
    EXPECT_EQ(provider.live, 0u);
}

TEST(ofi_queue, for_few_sleeps_on_what_is_told_after_trywait) {
    made_up_provider provider;
    provider.told = {of_its_own};
    provider.after_trywait = {of_its_own, {71, POLLIN, 0}, {72, POLLIN | POLLOUT, 0}};
    {
        ofi_queue queue;
        ASSERT_TRUE(queue.open_for_few(&provider.fabric, &provider.domain, 64));
        EXPECT_TRUE(queue.wakes());
        ofi_descriptors all;
        ASSERT_TRUE(queue.arm(&provider.fabric, all));
        ASSERT_EQ(all.count, 2u);
        EXPECT_EQ(all.used()[0].fd, 71);
        EXPECT_EQ(all.used()[1].fd, 72);
        EXPECT_EQ(all.used()[1].events, POLLIN | POLLOUT);

        provider.has_something = true;
        EXPECT_FALSE(queue.arm(&provider.fabric, all));
    }
    EXPECT_EQ(provider.live, 0u);
}

// Rather awake for ever than asleep on some of them.
TEST(ofi_queue, for_few_does_not_sleep_if_more_is_told_than_there_is_room_for) {
    made_up_provider provider;
    provider.told = {of_its_own, {71, POLLIN, 0}};
    ofi_queue queue;
    ASSERT_TRUE(queue.open_for_few(&provider.fabric, &provider.domain, 64));
    provider.told.resize(ofi_descriptors{}.all.size() + 1, {72, POLLIN, 0});
    ofi_descriptors all;
    EXPECT_FALSE(queue.arm(&provider.fabric, all));
}

}  // namespace
}  // namespace amalgam::detail
