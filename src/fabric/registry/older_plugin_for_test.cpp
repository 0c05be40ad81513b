// A plug-in as version 2 of the interface knew it: its port has the virtual functions of that
// version, in their order, and nothing behind them. It carries everything over a loop port.
#include <cstddef>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>

#include <amalgam/fabric/plugin.hpp>

namespace amalgam {
namespace {

constexpr std::uint32_t version = 2;

/// What `port` was in version 2. Never change it.
class port_of_version_2 {
public:
    virtual ~port_of_version_2() = default;
    virtual const capabilities& can() const noexcept = 0;
    virtual std::string address() const = 0;
    virtual std::uint64_t incarnation() const noexcept = 0;
    virtual std::string explain() const = 0;
    virtual result<peer_id> lookup(std::string_view address) noexcept = 0;
    virtual std::string peer_address(peer_id) const = 0;
    virtual void close(peer_id) noexcept = 0;
    virtual void set_sink(message_sink*) noexcept = 0;
    virtual posted post_send(peer_id, std::uint64_t tag, gather, completion&) noexcept = 0;
    virtual posted post_send_expected(peer_id, std::uint64_t tag, gather, completion&) noexcept = 0;
    virtual posted post_receive(peer_id, std::uint64_t tag, mutable_bytes,
                                completion&) noexcept = 0;
    virtual result<region> open_region(scatter, access) noexcept = 0;
    virtual result<shared_block> allocate(std::size_t bytes) noexcept = 0;
    virtual posted post_put(peer_id, gather, const remote_key&, std::uint64_t offset,
                            completion&) noexcept = 0;
    virtual posted post_get(peer_id, scatter, const remote_key&, std::uint64_t offset,
                            completion&) noexcept = 0;
    virtual void cancel(completion&) noexcept = 0;
    virtual std::size_t progress(std::size_t budget) noexcept = 0;
    virtual int wait_handle() const noexcept = 0;
    virtual bool prepare_to_sleep() noexcept = 0;
    virtual const clock& time() const noexcept = 0;
    virtual void attach_driver(port_driver*) noexcept = 0;
    virtual void driver_ready() noexcept = 0;
    virtual std::size_t open_operations() const noexcept = 0;
    virtual port_usage usage() const noexcept = 0;

private:
    virtual void close_region(std::uint64_t id) noexcept = 0;
};
static_assert(sizeof(port_of_version_2) == sizeof(port));

constexpr std::string_view inside_scheme = "loop://";
constexpr std::string_view outside_scheme = "for-test-older://";

/// An address with the other scheme; other addresses unchanged.
std::string with_scheme(std::string_view address, std::string_view now, std::string_view then) {
    if (!address.starts_with(now)) return std::string(address);
    return std::string(then) + std::string(address.substr(now.size()));
}

class older_loop final : public port_of_version_2 {
public:
    explicit older_loop(std::unique_ptr<port> inside) : inside_(std::move(inside)) {
        capabilities copy = inside_->can();
        copy.transport = "for-test-older";
        std::memcpy(static_cast<void*>(&can_), &copy, sizeof can_);
        // Padding in version 2, so it may hold anything.
        std::memset(reinterpret_cast<std::byte*>(&can_) + offsetof(capabilities, atomics), 0x7f, 1);
    }
    ~older_loop() override {
        regions_.clear();
        delete inside_.get();
        (void)inside_.release();
    }

    const capabilities& can() const noexcept override { return can_; }
    std::string address() const override {
        return with_scheme(inside_->address(), inside_scheme, outside_scheme);
    }
    std::uint64_t incarnation() const noexcept override { return inside_->incarnation(); }
    std::string explain() const override { return inside_->explain(); }
    result<peer_id> lookup(std::string_view address) noexcept override {
        return inside_->lookup(with_scheme(address, outside_scheme, inside_scheme));
    }
    std::string peer_address(peer_id peer) const override {
        return with_scheme(inside_->peer_address(peer), inside_scheme, outside_scheme);
    }
    void close(peer_id peer) noexcept override { inside_->close(peer); }
    void set_sink(message_sink* sink) noexcept override { inside_->set_sink(sink); }
    posted post_send(peer_id to, std::uint64_t tag, gather from, completion& op) noexcept override {
        return inside_->post_send(to, tag, from, op);
    }
    posted post_send_expected(peer_id to, std::uint64_t tag, gather from,
                              completion& op) noexcept override {
        return inside_->post_send_expected(to, tag, from, op);
    }
    posted post_receive(peer_id from, std::uint64_t tag, mutable_bytes into,
                        completion& op) noexcept override {
        return inside_->post_receive(from, tag, into, op);
    }
    result<region> open_region(scatter segments, access rights) noexcept override {
        auto opened = inside_->open_region(segments, rights);
        if (!opened) return opened;
        const remote_key key = opened->key();
        regions_.emplace(++last_region_, std::move(*opened));
        // Ended through the table of virtual functions of version 2.
        return region(*reinterpret_cast<port*>(this), last_region_, key);
    }
    result<shared_block> allocate(std::size_t bytes) noexcept override {
        return inside_->allocate(bytes);
    }
    posted post_put(peer_id to, gather from, const remote_key& key, std::uint64_t offset,
                    completion& op) noexcept override {
        return inside_->post_put(to, from, key, offset, op);
    }
    posted post_get(peer_id from, scatter into, const remote_key& key, std::uint64_t offset,
                    completion& op) noexcept override {
        return inside_->post_get(from, into, key, offset, op);
    }
    void cancel(completion& op) noexcept override { inside_->cancel(op); }
    std::size_t progress(std::size_t budget) noexcept override { return inside_->progress(budget); }
    int wait_handle() const noexcept override { return inside_->wait_handle(); }
    bool prepare_to_sleep() noexcept override { return inside_->prepare_to_sleep(); }
    const clock& time() const noexcept override { return inside_->time(); }
    void attach_driver(port_driver* driver) noexcept override { inside_->attach_driver(driver); }
    void driver_ready() noexcept override { inside_->driver_ready(); }
    std::size_t open_operations() const noexcept override { return inside_->open_operations(); }
    port_usage usage() const noexcept override { return inside_->usage(); }

private:
    void close_region(std::uint64_t id) noexcept override { regions_.erase(id); }

    std::unique_ptr<port> inside_;
    capabilities can_;
    std::unordered_map<std::uint64_t, region> regions_;
    std::uint64_t last_region_ = 0;
};

class older_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "for-test-older"; }
    transport_info describe() const override {
        transport_info info;
        info.name = "for-test-older";
        info.usable = true;
        info.summary = "a plug-in of an older interface";
        return info;
    }
    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        auto inside = native_.open(std::string(inside_scheme) + where.name, options);
        if (!inside) return inside;
        auto made = std::make_unique<older_loop>(std::move(*inside));
        return std::unique_ptr<port>(reinterpret_cast<port*>(made.release()));
    }

private:
    const transport_registry native_ = transport_registry::native();
};

}  // namespace
}  // namespace amalgam

AMALGAM_TRANSPORT_PLUGIN_BUILT(amalgam::version, amalgam::describe_plugin_abi(amalgam::version),
                               []() -> amalgam::transport* { return new amalgam::older_transport; })
