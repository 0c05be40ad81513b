#include "fabric/transports/ofi/completion_queue.hpp"

namespace amalgam::detail {
namespace {

int open_queue(fid_domain* domain, std::size_t entries, fi_wait_obj wakes_by,
               ofi_handle<fid_cq>& into) noexcept {
    fi_cq_attr wanted{};
    wanted.size = entries;
    wanted.format = FI_CQ_FORMAT_DATA;
    wanted.wait_obj = wakes_by;
    fid_cq* made = nullptr;
    const int how = fi_cq_open(domain, &wanted, &made, nullptr);
    if (how == 0) into.reset(made);
    return how;
}

}  // namespace

int ofi_queue::open(fid_domain* domain, std::size_t entries) noexcept {
    if (open_queue(domain, entries, FI_WAIT_FD, queue_) != 0)
        return open_queue(domain, entries, FI_WAIT_NONE, queue_);
    int descriptor = -1;
    if (fi_control(&queue_->fid, FI_GETWAIT, &descriptor) == 0) descriptor_ = descriptor;
    return 0;
}

bool ofi_queue::open_for_few(fid_fabric* fabric, fid_domain* domain, std::size_t entries) noexcept {
    if (open_queue(domain, entries, FI_WAIT_POLLFD, queue_) != 0) return false;
    // libfabric 1.22 takes the wish, yet tells only the descriptor that says nothing of sockets:
    // its tcp has an epoll set in any case.
    ofi_descriptors now;
    fid* queue = &queue_->fid;
    for_few_ = fi_trywait(fabric, &queue, 1) == 0 && arm_few(now) && now.count > 0;
    if (!for_few_) queue_.reset();
    return for_few_;
}

bool ofi_queue::arm(fid_fabric* fabric, ofi_descriptors& into) noexcept {
    fid* queue = &queue_->fid;
    if (fi_trywait(fabric, &queue, 1) != 0) return false;
    // After fi_trywait(), which carries out what the provider has put off of changes to its list.
    if (for_few_) return arm_few(into);
    into.all[into.count++] = {descriptor_, POLLIN, 0};
    return true;
}

bool ofi_queue::arm_few(ofi_descriptors& into) noexcept {
    ofi_descriptors told;
    fi_wait_pollfd list{0, told.all.size(), told.all.data()};
    if (fi_control(&queue_->fid, FI_GETWAIT, &list) != 0 || list.nfds == 0) return false;
    // The first one tells a thread inside the provider's own poll() that the list has changed. It
    // stays ready when no thread is there.
    for (std::size_t i = 1; i < list.nfds; ++i) {
        if (into.count == into.all.size()) return false;
        into.all[into.count++] = told.all[i];
    }
    return true;
}

}  // namespace amalgam::detail
