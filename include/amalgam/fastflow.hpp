#pragma once

#if !__has_include(<ff/ff.hpp>)
#error "amalgam/fastflow.hpp needs FastFlow: pass -I$FASTFLOW_ROOT, the folder that has ff/ff.hpp"
#endif

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ff/ff.hpp>

#include <amalgam/flow/detail/fastflow_in.hpp>
#include <amalgam/flow/detail/fastflow_out.hpp>
#include <amalgam/flow/fastflow_options.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/type_name.hpp>

/// Nodes that make FastFlow programs distributed. A pipeline is cut into programs: the first ends
/// with a sender, the next begins with a receiver, and what is between stays as it is.
///
///     numbers first(1000);
///     am::fastflow_sender<job> to("tcp://node7:7000");
///     ff::ff_Pipe<> pipe(first, to);
///     return pipe.run_and_wait_end();
///
/// and on node7, started before or after:
///
///     am::fastflow_receiver<job> from("tcp://eth0:7000");
///     printer last;
///     ff::ff_Pipe<> pipe(from, last);
///     return pipe.run_and_wait_end();
///
/// Needs FastFlow's headers on the include path, and amalgam::flow to link. What is written anew is
/// better a graph of amalgam/flow: its groups need no addresses, and its nodes no threads.
namespace amalgam {

/// The first node of a pipeline, or the emitter of a farm, or a left worker of an all-to-all: gives
/// on what senders in other processes send to it.
///
///     fastflow_receiver<job> from("shm://G2");                        // one sender
///     fastflow_receiver<job> from({{"shm://G2", "tcp://eth0:7000"}}); // one sender for each
///     fastflow_receiver<job> from("tcp://eth0:7000", 8);              // eight
///
/// Items of one sender come in their order, those of different senders in any. Each is made by
/// `new T`, and belongs to the next node. Ends when all senders have ended.
/// Owner:   owns its engine, which listens from the constructor on. May be destroyed when the
///          pipeline has ended. Runs once.
/// Threads: the node's own, and one of the engine.
/// Failure: the constructor throws what the transports say. What breaks later is told to
///          fastflow_options::on_failure, which by default ends the process with one sentence: a
///          sender is lost (at once when it was killed, else after the transport's silence limit)
///          or failed, has not joined in time, or sends what is no `T`.
/// Cost:    one copy of each batch, one `new` for each item.
template <typename T>
class fastflow_receiver : public ff::ff_node_t<T> {
public:
    /// `senders`: how many to expect, through all endpoints together; 0: as many as endpoints.
    explicit fastflow_receiver(endpoints where, std::size_t senders = 0,
                               fastflow_options options = {})
        : in_(std::move(where), senders, type_name<T>(), std::move(options)) {}

    /// Where senders find it, for endpoints that leave a part open, as shm:// and tcp://eth0:0 do.
    std::vector<std::string> addresses() { return in_.over().addresses(); }
    /// Ends the stream early, as if this node had failed; the others are told why.
    void fail(const std::string& why) { in_.fail({{errc::canceled}, why}); }
    /// What ended it early; nothing while all is well, and after a good end.
    std::optional<failure> failed() const { return in_.failed(); }

    T* svc(T*) override {
        while (std::optional<detail::fastflow_in::arrival> batch = in_.next()) {
            if (give_on(*batch)) {
                in_.consumed(*batch);
            } else {
                in_.give_back(std::move(*batch));
            }
        }
        in_.wait_for_last_words();
        return this->EOS;
    }

private:
    bool give_on(const detail::fastflow_in::arrival& batch) {
        try {
            archive_reader archive(batch.bytes.bytes());
            for (std::uint32_t i = 0; i < batch.items && archive.ok(); ++i) {
                std::unique_ptr<T> item = read(archive);
                if (archive.ok()) this->ff_send_out(item.release());
            }
            if (archive.ok() && archive.remaining() == 0) return true;
            in_.fail({{errc::corrupt},
                      "a batch of items cannot be read (" + std::string(archive.why()) +
                          "): build both ends from the same sources"});
        } catch (const std::exception& why) {
            in_.fail(
                {{errc::handler_failed}, std::string("an item cannot be read: ") + why.what()});
        }
        return false;
    }
    static std::unique_ptr<T> read(archive_reader& archive) {
        if constexpr (requires { T(T::amalgam_load(archive)); }) {
            return std::make_unique<T>(T::amalgam_load(archive));
        } else {
            static_assert(std::is_default_constructible_v<T>,
                          "this type cannot be received: give it a default constructor, or "
                          "static T amalgam_load(amalgam::archive_reader&)");
            auto item = std::make_unique<T>();
            archive(*item);
            return item;
        }
    }

    detail::fastflow_in in_;
};

/// The last node of a pipeline, or the collector of a farm, or a right worker of an all-to-all:
/// sends what it gets to receivers in other processes, and deletes it.
///
///     fastflow_sender<job> to("shm://G2");
///     fastflow_sender<job> to({"shm://G2", "tcp://node7:7000"});      // each item to one of them
///
/// Of several receivers the one with the least to do gets the next items, or the one whose number
/// `route(item)` gives. Receivers may start later: it looks for them until join_limit. The node
/// ends when all items have left the receivers, so nothing is lost unnoticed.
/// Owner:   as fastflow_receiver. Items must come from `new T`.
/// Threads: the node's own, and one of the engine.
/// Failure: the constructor throws for addresses that are none. What breaks later is told to
///          fastflow_options::on_failure, as a receiver does.
/// Cost:    items are written into batches, with one lock for each; a node that is faster than its
///          receivers waits while `batches_in_flight` batches have not left them. They leave into
///          FastFlow's queues, which have no bound unless told.
template <typename T>
class fastflow_sender : public ff::ff_node_t<T> {
    static_assert(serializable<T>,
                  "items that leave the process must be serializable: see codec.hpp");

public:
    using router = std::function<std::size_t(const T&)>;

    explicit fastflow_sender(std::string receiver, fastflow_options options = {})
        : fastflow_sender(std::vector<std::string>{std::move(receiver)}, {}, std::move(options)) {}
    explicit fastflow_sender(std::vector<std::string> receivers, router route = {},
                             fastflow_options options = {})
        : out_(std::move(receivers), type_name<T>(), std::move(options)),
          route_(std::move(route)) {}

    /// As fastflow_receiver::fail() and failed().
    void fail(const std::string& why) { out_.fail({{errc::canceled}, why}); }
    std::optional<failure> failed() const { return out_.failed(); }

    int svc_init() override {
        out_.join();
        return 0;  // Also when that failed: a node that ends here would leave the others waiting.
    }
    T* svc(T* item) override {
        const std::unique_ptr<T> owned(item);
        try {
            std::optional<std::size_t> to;
            if (route_) to = route_(*item);
            out_.send(to, [item](auto& archive) { archive(*item); });
        } catch (const std::exception& why) {
            out_.fail(
                {{errc::handler_failed}, std::string("an item cannot be sent: ") + why.what()});
        }
        return this->GO_ON;
    }
    void svc_end() override {
        out_.end();
        out_.wait_for_last_words();
    }

private:
    detail::fastflow_out out_;
    router route_;
};

}  // namespace amalgam
