#include "fabric/registry/older_port.hpp"

#include <utility>

#include <amalgam/fabric/identity.hpp>

namespace amalgam::detail {
namespace {

constexpr std::uint32_t first_with_atomics = 3;
constexpr std::uint32_t first_with_identities = 4;
constexpr std::uint32_t first_with_copied_bytes = 5;
constexpr std::uint32_t first_with_self = 6;

capabilities as_of_version(capabilities can, std::uint32_t version) noexcept {
    // The older port's structure has padding there, which may hold anything.
    if (version < first_with_atomics) can.atomics = atomic_mode::none;
    return can;
}

class older_port final : public port {
public:
    older_port(std::unique_ptr<port> inner, std::uint32_t version)
        : inner_(std::move(inner)),
          can_(as_of_version(inner_->can(), version)),
          has_atomics_(version >= first_with_atomics),
          has_identities_(version >= first_with_identities),
          counts_copies_(version >= first_with_copied_bytes),
          has_self_(version >= first_with_self) {}
    ~older_port() override {
        ending_ = true;
        while (first_ != nullptr)
            end_first({errc::closed});
        // Not reset(), which clears the pointer first: its completions may still post here.
        delete inner_.get();
        (void)inner_.release();
    }

    const capabilities& can() const noexcept override { return can_; }
    std::string address() const override { return inner_->address(); }
    std::uint64_t incarnation() const noexcept override { return inner_->incarnation(); }
    std::string explain() const override {
        std::string told = inner_->explain();
        if (has_atomics_) return told;
        told += told.ends_with('.') ? " " : ". ";
        return told +
               "Its plug-in is older than notified puts and atomic operations; they end with "
               "\"unsupported\".";
    }
    result<peer_id> lookup(std::string_view address) noexcept override {
        return inner_->lookup(address);
    }
    std::string peer_address(peer_id peer) const override { return inner_->peer_address(peer); }
    void close(peer_id peer) noexcept override { inner_->close(peer); }
    void set_sink(message_sink* sink) noexcept override { inner_->set_sink(sink); }
    posted post_send(peer_id to, std::uint64_t tag, gather from,
                     completion& on_done) noexcept override {
        return inner_->post_send(to, tag, from, on_done);
    }
    posted post_send_expected(peer_id to, std::uint64_t tag, gather from,
                              completion& on_done) noexcept override {
        return inner_->post_send_expected(to, tag, from, on_done);
    }
    posted post_receive(peer_id from, std::uint64_t tag, mutable_bytes into,
                        completion& on_done) noexcept override {
        return inner_->post_receive(from, tag, into, on_done);
    }
    using port::open_region;
    result<region> open_region(scatter segments, access rights) noexcept override {
        return inner_->open_region(segments, rights);
    }
    result<shared_block> allocate(std::size_t bytes) noexcept override {
        return inner_->allocate(bytes);
    }
    posted post_put(peer_id to, gather from, const remote_key& key, std::uint64_t offset,
                    completion& on_done) noexcept override {
        return inner_->post_put(to, from, key, offset, on_done);
    }
    posted post_get(peer_id from, scatter into, const remote_key& key, std::uint64_t offset,
                    completion& on_done) noexcept override {
        return inner_->post_get(from, into, key, offset, on_done);
    }
    posted post_put_notify(peer_id to, gather from, const remote_key& key, std::uint64_t offset,
                           std::uint64_t notice, completion& on_done) noexcept override {
        if (!has_atomics_) return refuse(on_done);
        return inner_->post_put_notify(to, from, key, offset, notice, on_done);
    }
    posted post_fetch_add(peer_id to, const remote_key& key, std::uint64_t offset,
                          std::uint64_t add, std::uint64_t* old,
                          completion& on_done) noexcept override {
        if (!has_atomics_) return refuse(on_done);
        return inner_->post_fetch_add(to, key, offset, add, old, on_done);
    }
    posted post_compare_swap(peer_id to, const remote_key& key, std::uint64_t offset,
                             std::uint64_t expected, std::uint64_t desired, std::uint64_t* old,
                             completion& on_done) noexcept override {
        if (!has_atomics_) return refuse(on_done);
        return inner_->post_compare_swap(to, key, offset, expected, desired, old, on_done);
    }
    transfer_counts transfers() const noexcept override {
        if (!has_atomics_) return {};
        transfer_counts counts = inner_->transfers();
        if (!counts_copies_) counts.copied_bytes = 0;  // It wrote nothing there.
        return counts;
    }
    void cancel(completion& op) noexcept override {
        // A refused one ends as it is in the next progress().
        for (const completion* one = first_; one != nullptr; one = one->port_next)
            if (one == &op) return;
        inner_->cancel(op);
    }
    std::size_t progress(std::size_t budget) noexcept override {
        std::size_t ran = 0;
        for (; ran < budget && first_ != nullptr; ++ran)
            end_first({errc::unsupported});
        return ran < budget ? ran + inner_->progress(budget - ran) : ran;
    }
    int wait_handle() const noexcept override { return inner_->wait_handle(); }
    bool prepare_to_sleep() noexcept override {
        return first_ == nullptr && inner_->prepare_to_sleep();
    }
    const clock& time() const noexcept override { return inner_->time(); }
    void attach_driver(port_driver* driver) noexcept override { inner_->attach_driver(driver); }
    void driver_ready() noexcept override { inner_->driver_ready(); }
    std::size_t open_operations() const noexcept override {
        return inner_->open_operations() + open_;
    }
    port_usage usage() const noexcept override { return inner_->usage(); }
    identity who(peer_id peer) const override {
        return has_identities_ ? inner_->who(peer) : port::who(peer);
    }
    identity self() const override { return has_self_ ? inner_->self() : port::self(); }

private:
    /// Regions are the inner port's own.
    void close_region(std::uint64_t) noexcept override {}

    posted refuse(completion& on_done) noexcept {
        if (ending_) return posted::full;
        on_done.port_next = nullptr;
        (first_ != nullptr ? last_->port_next : first_) = &on_done;
        last_ = &on_done;
        ++open_;
        return posted::pending;
    }
    void end_first(status what) noexcept {
        completion& op = *std::exchange(first_, first_->port_next);
        --open_;
        op.port_words[0] = 0;
        op.finish(what, 0);
    }

    std::unique_ptr<port> inner_;
    const capabilities can_;
    const bool has_atomics_;
    const bool has_identities_;
    const bool counts_copies_;
    const bool has_self_;
    completion* first_ = nullptr;  ///< Refused operations that have not ended, oldest first.
    completion* last_ = nullptr;   ///< Unless there are none.
    std::size_t open_ = 0;
    bool ending_ = false;
};

}  // namespace

std::unique_ptr<port> make_older_port(std::unique_ptr<port> inner, std::uint32_t version) {
    return std::make_unique<older_port>(std::move(inner), version);
}

}  // namespace amalgam::detail
