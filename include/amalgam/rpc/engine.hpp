#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/counter.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/transport.hpp>
#include <amalgam/rpc/allow_list.hpp>
#include <amalgam/rpc/archive_context.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/detail/handler.hpp>
#include <amalgam/rpc/detail/procedure_name.hpp>
#include <amalgam/rpc/engine_streams.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/peer_lost.hpp>
#include <amalgam/rpc/procedure.hpp>
#include <amalgam/rpc/raw_call.hpp>
#include <amalgam/rpc/type_name.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/extension/exit_ult.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {

class interceptor;

/// The ports of an engine: one URI, several URIs, or ports that are already open.
///     engine one{"tcp://127.0.0.1:0"};  engine two{{"shm://", "tcp://"}};
struct endpoints {
    endpoints(const char* one);
    endpoints(std::string_view one);
    endpoints(const std::string& one);
    endpoints(std::initializer_list<const char*> several);
    endpoints(std::vector<std::string> several);
    endpoints(std::unique_ptr<port> one);
    endpoints(std::vector<std::unique_ptr<port>> several);
    endpoints(endpoints&&) noexcept;
    endpoints& operator=(endpoints&&) noexcept;
    ~endpoints();

    std::vector<std::string> uris;             ///< To be opened, in this order.
    std::vector<std::unique_ptr<port>> ports;  ///< Open already; owned.
};

/// Pings to peers that are waited for. Off by default: a peer that only does not answer is then
/// waited for, unless the call has a deadline, because one that computes looks the same as one that
/// hangs. A killed process, and a host that is gone, end calls without this.
///
/// While a call, a transfer, a queued message or a stream, in either direction, waits for a peer,
/// it is pinged every `interval`. One that has neither answered a ping nor moved bytes of a
/// transfer within `timeout` loses its connection: all that waits for it ends `disconnected`, with
/// a sentence that says so, and so do later calls, until its address is looked up again. Nothing is
/// sent over a connection on which nothing waits.
///
/// The peer needs no option. It answers ("amalgam.ping") whenever its first stream makes progress;
/// a handler that computes there for longer than `timeout` looks hung. Let it serve with
/// progress_by::own_stream, or yield.
struct keepalive_options {
    std::chrono::milliseconds interval{0};     ///< 0: off.
    std::chrono::milliseconds timeout{20000};  ///< At least 1 ms.

    friend bool operator==(const keepalive_options&, const keepalive_options&) = default;
};

/// What an engine counts of its calls, handlers and transfers: see engine_statistics.hpp.
struct statistics_options {
    /// Where they are written when the engine ends: "/tmp/statistics.{host}.{pid}.{name}.json",
    /// with the names of this host, process and engine; of engines with one file the last to end
    /// replaces what others wrote. A link is followed. Empty: nowhere; see read_statistics(). What
    /// cannot be written is told by the log.
    std::string file{};
    /// Rows of calls, of handlers and of transfers each, of one procedure, peer and parent. What
    /// comes beyond is counted in one row. A row takes some 500 bytes, and its names.
    std::size_t max_rows = 4096;

    friend bool operator==(const statistics_options&, const statistics_options&) = default;
};

/// Options of an engine. The defaults suit most programs.
struct engine_options {
    std::string name = "amalgam";  ///< Prefix of stream names, in the OS and in logs.
    /// Execution streams. The first owns the ports and runs handlers. The others run work spawned
    /// on them and handlers assigned to them by procedure_options.
    stream_set streams{};
    std::vector<pool_options> pools{};  ///< More pools, for the streams to serve.
    /// Name of the pool or stream that runs handlers by default. Empty: the first stream, or the
    /// second with progress_by::own_stream.
    std::string handlers{};
    progress_options progress{};                     ///< Who makes progress on the ports, and how.
    std::chrono::nanoseconds spin = adaptive_spin;   ///< Polling time before an idle stream sleeps.
    port_options ports{};                            ///< For ports opened by URI.
    const transport_registry* transports = nullptr;  ///< Null: the native ones, shared.
    /// Messages to one peer that may queue for send resources before callers block.
    std::size_t max_queued = 1024;
    /// Requests served at once. Further ones are answered `overloaded`.
    std::size_t max_running = 16384;
    /// One-way calls from other engines that run here at once, each in its own ULT (calls to
    /// `inline_` handlers do not count). Past the limit, peers below their fair share are still
    /// served, up to twice the limit in total. Any other call is dropped: counted here as
    /// "rpc.overloaded", and reported to its sender, which logs it and counts it as
    /// "rpc.one_ways_refused".
    std::size_t max_one_ways = 65536;
    /// Bytes of replies queued for one peer that is not reading, each counted with 4 KiB of
    /// overhead. While the backlog exceeds this, requests from that peer are answered `overloaded`
    /// and do not run. At twice the limit the peer is disconnected.
    std::size_t max_unread_bytes = std::size_t{64} << 20;
    /// The same over all peers. Past it, the peer with the largest backlog is disconnected.
    std::size_t max_unread_bytes_total = std::size_t{1} << 30;
    /// Bytes of results held for peers to fetch, until fetched or released: per peer, and in total.
    /// Past the first limit, the peer's next such result becomes `overloaded`. Past the second it
    /// does too, unless another peer holds more: then that peer is disconnected. A single result
    /// always fits. Memory exposed by descriptors does not count.
    std::size_t max_borrowed_bytes = std::size_t{512} << 20;
    /// The total; see max_borrowed_bytes.
    std::size_t max_borrowed_bytes_total = std::size_t{2} << 30;
    /// Bytes of values that callers may send ahead of the handlers that read them (stream_reader),
    /// and peers ahead of those that forward them (raw_call::forward()), all together: a window
    /// that would exceed it is smaller, but at least one value. A sender of larger values than its
    /// transport should ends as `overloaded` past it. Of values that must be fetched, each reader
    /// has one.
    std::size_t max_reader_bytes = std::size_t{1} << 30;
    /// Size limit for the arguments of one incoming request or one-way call, for the result of one
    /// call, and for one value of a stream, however they arrive. Past it: `too_large`.
    std::size_t max_values_bytes = std::size_t{1} << 30;
    /// See every call; see interceptor.hpp.
    std::vector<std::shared_ptr<interceptor>> interceptors{};
    /// Encoding of this engine's calls; replies use the same one. Every engine reads both.
    amalgam::encoding encoding = amalgam::encoding::native;
    /// Adds a CRC-32C to calls and their replies, including values fetched by rendezvous. A damaged
    /// message is not run, and its caller gets `corrupt`. Peers without this option still verify
    /// and answer in kind.
    bool checksum = false;
    /// An object that serialize() functions of this engine's calls see, as `archive.context<T>()`;
    /// a const one as `archive.context<const T>()`.
    archive_context context{};
    /// How long stop() waits for calls in flight in either direction, for posted messages to leave,
    /// and for peers to fetch arguments or results. At most 30 days.
    std::chrono::milliseconds drain{1000};
    /// Whether any peer may stop this engine, by engine::stop_remote(). Otherwise they get
    /// `denied`.
    bool remote_stop = false;
    /// Whether peers may read which procedures there are: see describe.hpp.
    bool reflection = true;
    /// Who may call procedures, the library's own ("amalgam.ping" …) and posted messages between
    /// resources included. Empty optional: whoever reaches a port. Others get `denied` with a
    /// sentence that says who this engine thinks they are; no handler runs, "rpc.denied" counts
    /// them, and they do not learn which procedures there are. This engine itself always may.
    std::optional<allow_list> allow{};
    /// The same by name of a procedure, in place of `allow`: the first of that name. Others cannot
    /// run the handler, but may learn that the procedure exists, unless `allow` keeps them out.
    /// procedure_options::allow takes precedence.
    std::vector<std::pair<std::string, allow_list>> allow_for{};
    keepalive_options keepalive{};  ///< Notices peers that hang. Off by default.
    /// Counts calls, handlers and transfers by procedure, peer and calling handler. Empty optional:
    /// nothing is counted, and calls pay nothing. Else servers are told from within which handler
    /// a call was made.
    std::optional<statistics_options> statistics{};
};

/// Where a handler runs.
enum class handler : std::uint8_t {
    ult,     ///< In its own ULT; may wait, make calls, and run long.
    inline_  ///< On the progress stream, immediately; must be short and never wait.
};

/// What the caller declares about a procedure.
struct calling_options {
    /// Safe to run twice, so it may be retried; see bound_procedure::retrying().
    bool idempotent = false;
    /// What serialize() functions of its calls see here, in place of engine_options::context: see
    /// archive_context.
    archive_context context{};
};

/// How a procedure is served.
struct procedure_options {
    handler run = handler::ult;  ///< In a ULT of its own, or inline.
    pool* in = nullptr;          ///< Pool for the ULTs; null: as engine_options::handlers.
    std::string_view in_pool{};  ///< The same, by the name of one of the engine's pools.
    /// Number of streams created for this procedure alone. They end with undefine(); if calls are
    /// still running there, with the next define(), undefine() or stop().
    unsigned streams = 0;
    /// Provider id. Several providers may serve one name, each with its own handler. Callers choose
    /// with `procedure.on(peer, provider)`.
    std::uint16_t provider = 0;
    /// One sentence for people who look the procedure up: see describe.hpp. At most 1,024 bytes.
    std::string_view about{};
    /// Who may call it, in place of engine_options::allow and allow_for. Empty optional: as those
    /// say.
    std::optional<allow_list> allow{};
    /// What serialize() functions of its arguments, results and stream values see here, in place of
    /// engine_options::context: see archive_context.
    archive_context context{};
};

struct engine_config;

/// One path to an engine that is known by several addresses.
struct peer_way {
    peer by;              ///< The engine over this path while it is up, then over another.
    std::string address;  ///< The address that was looked up, or that the peer connected from.
    capabilities can;     ///< Capabilities of this engine's port.
};

/// Calls remote procedures and serves its own, over one or several ports.
///
/// Names starting with "amalgam." are reserved: "amalgam.ping" echoes its number. Any peer may call
/// them; defining or undefining one is refused.
/// Owner:   owns its ports and streams. The destructor is stop(). It may run anywhere, including
///          the engine's own handlers and callbacks. On the engine's own streams it does not wait
///          for them: code running there continues after the destructor, and the streams end once
///          nothing runs there, or `drain` later.
///          A child of fork() has none of the engine's threads. There, calls, spawn() and the like
///          throw error{closed} with a message that says so; stop() and the destructor do nothing;
///          exit() does not wait for the engine. Anything the parent's code was waiting for at the
///          fork never completes in the child. A new engine in the child works normally. A child
///          forked inside a handler, a continuation, an interceptor, a transfer's on_progress, or
///          the destruction of memory given to expose_owned() or post_held() must exec() or _exit()
///          before that returns; otherwise it is ended there, see execution_stream.
/// Threads: any member from any thread or ULT, unless stated otherwise. The engine's own threads
///          block the program's signals, except synchronous ones, SIGPROF and the real-time
///          signals. Programs started by handlers inherit that mask unless they set another. By
///          default all handlers of an engine are ULTs of one stream: none runs concurrently with
///          another, and they interleave only where they wait.
/// Failure: the constructor throws the transport's error, in one sentence.
/// Cost:    uses no CPU while idle.
class engine {
public:
    explicit engine(endpoints where);
    explicit engine(endpoints where, engine_options options);
    /// From the result of parse_engine_config() or load_engine_config().
    explicit engine(const engine_config& config);
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;
    ~engine();

    /// The address to pass to lookup(): that of the first listening port; empty if none listens.
    std::string address() const;
    /// Addresses of all listening ports, in order.
    std::vector<std::string> addresses() const;

    /// Makes a peer from an address and starts connecting through the port of that transport. Does
    /// not wait for the connection: an unreachable peer shows up as failed calls.
    /// Failure: throws error{invalid} for a malformed address, error{unsupported} if no port of
    ///          this engine speaks its transport.
    peer lookup(std::string_view address);
    result<peer> try_lookup(std::string_view address);

    /// Finds an engine known by several addresses, as returned by addresses(), and uses the best
    /// that works: this engine itself, then this process, this host, the network. Among equals it
    /// prefers a path whose transfers need no messages, then list order. Probes every address and
    /// waits until all have answered, but at most 200 ms after the first answer; parks the ULT or
    /// thread. See peer::explain().
    ///
    /// When that path is lost, new calls and bulk transfers use the next best. Calls in flight end
    /// with `disconnected`, or are retried (bound_procedure::retrying()). The peer is lost only
    /// when no path is left. Lost paths are not retried: look the peer up again.
    ///
    /// Never uses an address where a different engine answers. A host-local address (shm://…),
    /// which may exist on other hosts too, is used only if a global address in the list (tcp://…)
    /// leads to the same engine, or the list has no global address.
    /// Failure: throws error{unreachable} with the cause for each address, or error{denied} if one
    ///          leads to an engine whose `allow` keeps this one out; error{invalid} for an
    ///          empty list, a malformed address, or a caller that cannot wait; error{unsupported}
    ///          if no port of this engine speaks any of the transports.
    peer lookup(std::span<const std::string> addresses);
    peer lookup(std::initializer_list<std::string_view> addresses);
    result<peer> try_lookup(std::span<const std::string> addresses);
    /// The same without waiting.
    future<peer> start_lookup(std::span<const std::string> addresses);
    /// All live paths to that engine, best first; empty once it is gone. A peer looked up by one
    /// address has one path.
    std::vector<peer_way> ways(const peer& who);

    /// Serves `name` with `function`, typed by its parameters and result. Parameters of type
    /// std::string_view and std::span<const T> borrow from the message while the handler runs.
    /// Failure: throws error{invalid} if the name is taken, has another signature at another
    ///          provider, is empty, or exceeds 255 bytes; error{denied} if it starts with
    ///          "amalgam."; error{closed} after stop().
    template <typename Function>
    requires(!std::is_function_v<Function>) void define(detail::procedure_name name,
                                                        Function function,
                                                        procedure_options options = {}) {
        using types = detail::served<typename detail::callable_signature<Function>::type>;
        using typed =
            detail::typed_handler<Function, typename types::way, typename types::signature>;
        add_handler(name, signature_text<typename types::signature>(), options, types::form,
                    std::make_unique<typed>(std::move(function)));
    }
    /// The same for a callable that accepts several signatures: define<int(int)>("f", generic).
    template <typename Signature, typename Function>
    requires(std::is_function_v<Signature>) void define(detail::procedure_name name,
                                                        Function function,
                                                        procedure_options options = {}) {
        using typed =
            detail::typed_handler<Function, typename detail::served<Signature>::way, Signature>;
        static_assert(detail::callable_as<Function, Signature>,
                      "the handler cannot be called with the signature's arguments");
        add_handler(name, signature_text<Signature>(), options, detail::answer_form::result,
                    std::make_unique<typed>(std::move(function)));
    }
    /// Serves `name` with a function that gets the arguments undecoded, and returns the result
    /// encoded: for proxies and other languages. `signature`: as callers have it,
    /// "i32(i32,string)"; "stream<i32>(i32)" of one that answers by raw_call::send().
    /// Failure: as define(); error{invalid} for an empty function and a signature that is none;
    ///          error{unsupported} for one that reads a stream.
    void define_raw(detail::procedure_name name, std::string signature,
                    std::function<raw_values(const raw_call&)> function,
                    procedure_options options = {});
    /// Serves whatever nobody defined: every name without a procedure here, except those that begin
    /// with "amalgam.", and those that read a stream. A name that is defined, but not with that
    /// signature or provider, is still refused. Names are remembered as they are called, 1,024 of
    /// them for all peers. Past that, the oldest names of the peers that brought most are
    /// forgotten; a caller of one gets `not_found` once, with a sentence that says so. Calls that
    /// return a stream run in a ULT, whatever the options say.
    /// Failure: throws error{invalid} for an empty function, or if there is such a function;
    ///          error{closed} after stop().
    void define_any(std::function<raw_values(const raw_call&)> function,
                    procedure_options options = {});
    /// Calls that run finish. False: there was none, or the engine is stopped.
    bool undefine_any();
    /// Calls a procedure whose types only its handler knows; parks the ULT or thread.
    /// Failure: throws what calls throw; error{invalid} for an invalid signature or encoding;
    ///          error{unsupported} for a signature that returns or reads a stream, and for a
    ///          result that lends memory: see raw_call.
    raw_values call_raw(const peer& there, std::string_view name, std::string signature,
                        const raw_values& arguments, const raw_call_options& how = {});
    /// Runs later calls of a procedure in another of the engine's pools; see pool(). Calls that run
    /// stay where they are. An inline handler becomes a ULT.
    /// Failure: throws error{not_found} for an unknown pool or procedure, error{denied} for a name
    ///          that starts with "amalgam.", error{closed}.
    void move_procedure(std::string_view name, std::string_view to_pool,
                        std::uint16_t provider = 0);

    /// Stops serving `name`; calls already running finish. Returns false if there is no such name
    /// or the engine is stopped. Failure: throws error{denied} if it starts with "amalgam.";
    /// error{invalid} where it cannot wait: in call_then() or an inline handler of another engine,
    /// and in a tasklet.
    bool undefine(detail::procedure_name name, std::uint16_t provider = 0);

    /// A callable for the remote procedure `name`. Contacts nobody: a missing procedure shows in
    /// the call.
    template <typename Signature>
    amalgam::procedure<Signature> procedure(std::string_view name, calling_options how = {}) {
        return {*core_, intern(name, signature_text<Signature>()), how.idempotent,
                std::move(how.context)};
    }

    /// Runs `function()` as a ULT where handlers run, and waits for its result. Calls made on the
    /// progress stream need no hand-over between threads, so this is the fastest way to make many.
    /// this_task::exit() inside ends the ULT; a caller waiting for a value then gets
    /// error{canceled}.
    /// Failure: throws what the function throws; error{closed} after stop(); error{invalid} if the
    ///          caller must not wait.
    template <typename Function>
    auto run(Function function) -> std::invoke_result_t<Function&> {
        check_runs();
        check_may_wait();
        return spawn(std::move(function)).get();
    }
    /// The same without waiting. Failure: throws error{closed} after stop().
    template <typename Function>
    auto spawn(Function function) -> future<std::invoke_result_t<Function&>> {
        using value = std::invoke_result_t<Function&>;
        promise<value> result;
        future<value> later = result.get_future();
        const stays_open until_it_is_there(*core_);
        amalgam::post(pool(),
                      [result = std::move(result), function = std::move(function)]() mutable {
                          try {
                              if constexpr (std::is_void_v<value>) {
                                  function();
                                  result.set_value();
                              } else {
                                  result.set_value(function());
                              }
                          } catch (const detail::exit_ult&) {
                              // For other types the promise's destructor reports the missing value.
                              if constexpr (std::is_void_v<value>) result.set_value();
                          } catch (...) {
                              result.set_exception(std::current_exception());
                          }
                      });
        return later;
    }

    /// Execution stream `index`; 0 owns the ports. Failure: throws error{invalid} if out of range.
    execution_stream& stream(std::size_t index = 0);
    std::size_t stream_count() const noexcept;
    /// A pool by the name given in the options, or by its stream's name. Empty: the default pool
    /// for handlers.
    /// Failure: throws error{not_found} and lists the names.
    amalgam::pool& pool(std::string_view name = {});
    /// Adds a pool of that name with streams of its own, while the engine runs. Procedures can be
    /// defined in it or moved there; pool() finds it.
    /// Failure: throws error{invalid} for a name that is taken or empty, for no or too many streams
    ///          (1 to 1,024), for a fifo pool with several, and in virtual time; error{closed}.
    void add_pool(const pool_options& how, unsigned streams = 1);
    /// Ends it. False, and nothing happens: no pool of that name was added.
    /// Failure: throws error{in_use} while procedures are defined in it, something runs there, or a
    ///          stream that was added serves it.
    bool remove_pool(std::string_view name);
    /// Adds a stream, while the engine runs, that serves pools which are there: `how.pools` names
    /// pools of the options or added ones, except fifo ones. Without a name it gets the engine's
    /// and that of its first pool. stream() and stream_count() leave it out. Returns its name.
    /// Failure: throws error{invalid} for no pools, one twice, a fifo pool, CPUs that cannot be
    ///          used, more than 1,024 streams, and in virtual time; error{not_found} for a pool
    ///          that is not there; error{closed}.
    std::string add_stream(const stream_options& how);
    /// Ends a stream of that name, added or not; of several, the newest. What is ready in its pools
    /// goes on in others that serve them. Waits for what it runs, until that waits, yields or ends;
    /// parks the ULT or thread. stream() still has one of the options, stopped. False, and nothing
    /// happens: there is none of that name.
    /// Failure: throws error{in_use} if nobody else serves one of its pools; error{invalid} for the
    ///          first stream, for the one that runs the caller, and where the caller must not wait;
    ///          error{closed}.
    bool remove_stream(std::string_view name);
    /// Switches how progress is made, while running. No message is lost or delayed. Running
    /// handlers stay where they are.
    /// Failure: throws error{invalid} for a change from or to progress_by::caller, in virtual time,
    ///          and when the first stream would be left with handlers.
    void set_progress(progress_options how);
    /// The options as JSON, with defaults resolved and the ports' actual addresses, each with the
    /// option `credentials` or `insecure` of its URI. parse_engine_config() reads it.
    /// port_options::trust is no text, and is left out.
    std::string configuration() const;

    /// For progress_by::caller, where the engine has no thread for its ports. The loop's thread is
    /// the one that made the engine, until another calls progress(). It watches wait_handle() with
    /// epoll or poll and calls progress() when readable; nothing else is needed. Outside a ULT that
    /// thread must not wait for anything only progress() can deliver: calls, run(), or another
    /// thread's stop(). Calls and run() throw error{invalid} there; start() and post() are fine.
    /// Other threads may do anything, as with every engine.
    ///
    /// Handles ready ports, timers and ULTs, stopping soon after `most` items, which is at least 1:
    /// with 0 the wait handle stays readable. Returns how many it handled. Never blocks. Afterwards
    /// the wait handle becomes readable as soon as there is more to do, from any source.
    /// Failure: throws error{invalid} when called recursively, or if the engine has its own thread.
    std::size_t progress(std::size_t most = 256);
    /// Valid until the engine is destroyed. Throws error{invalid} if the engine has its own thread.
    /// Cost: once asked for, each progress() that ends without work arms it, some system calls. A
    /// loop that only polls leaves it alone.
    int wait_handle() const;
    /// When the earliest timer is due; the wait handle becomes readable then, too.
    std::optional<clock::time_point> next_timer() const noexcept;

    /// Calls `function(who, why)` once for each peer lost from now on: gone, disconnected, or never
    /// reached (`unreachable`). `who.address()` is its address. Runs as a ULT where handlers run,
    /// so it may wait; one call at a time per subscription, until the subscription ends. Peers that
    /// stop() disconnects are not lost. Failure: throws error{invalid} for an empty function.
    [[nodiscard]] peer_lost_subscription on_peer_lost(
        std::function<void(const peer&, status)> function);

    /// The clock used for deadlines.
    clock::time_point now() const noexcept;
    /// Counters of this engine, by name: "rpc.calls", "rpc.malformed" …
    counter_set& counters() noexcept;

    /// Ends in bounded time. Accepts no new calls in either direction, then waits up to `drain` for
    /// calls in flight, for posted messages to leave, and for peers to fetch arguments and results.
    /// Then fails the rest with `closed`. Idempotent; any number of callers may stop at once:
    /// callers outside return when it has ended, a caller inside leaves it to the first.
    ///
    /// After that, code waiting on the engine's own streams (in a handler, run() or spawn()) gets
    /// error{canceled}, as from ult::cancel(). A ULT that has not ended a second later, or waits
    /// for something that ignores cancel (such as stop() of another engine past `drain`), is
    /// abandoned; callers waiting for it through run() or a spawn() future are not notified. A
    /// handler in a user's pool continues, unless it produces a stream.
    ///
    /// Inside one of the engine's own ULTs, or on a driven engine, fails the rest at once. Where
    /// waiting is impossible (call_then() functions, inline handlers, on_progress, interceptors and
    /// tasklets, of this or another engine), it returns at once: no new call starts, and the rest
    /// is done when the calling function returns. Only from then on do run() and spawn() throw
    /// error{closed}.
    void stop();
    /// Waits until somebody has stopped the engine: another thread, a handler, or a peer by
    /// stop_remote(). Any number of ULTs and threads may wait. Returns at once if it is stopped.
    /// A handler that waits here is a call in flight, for which stop() waits up to `drain`.
    /// Failure: throws error{invalid} for a caller that cannot wait, inside a function of
    ///          on_stopping() and on_stopped(), and on the thread that calls progress(), which
    ///          would stand still: go on calling it until stopped(); error{closed} in a child of
    ///          fork().
    void wait_until_stopped();
    /// Whether that has happened.
    bool stopped() const noexcept;
    /// Asks the engine of that peer to stop(), and waits for its consent, not for its end. It
    /// drains as usual, except in virtual time and in a user's loop.
    /// Failure: throws error{denied} unless its engine_options::remote_stop is set; else what
    ///          calls throw.
    void stop_remote(const peer& there);

    /// `function()` runs once when the engine stops, before anything ends: it may still call and be
    /// called. The last one added runs first; one added meanwhile runs next. Runs where stop() was
    /// called (or on a thread in its place), and may wait if stop() may wait there. Other callers
    /// of stop() wait for it, except on the engine's own streams and where waiting is impossible:
    /// they return. A stop() inside the function returns at once. Exceptions are logged.
    /// Returns: a number for drop_stop_function().
    /// Failure: throws error{invalid} for an empty function, error{closed} if it would never run.
    std::uint64_t on_stopping(std::function<void()> function);
    /// The same, but after the last call, transfer and message: the engine can no longer be used.
    /// It may run on the engine's stream, and must not wait.
    std::uint64_t on_stopped(std::function<void()> function);
    /// Removes such a function. False: it has run, runs now, or is unknown.
    bool drop_stop_function(std::uint64_t number) noexcept;

    /// The implementation; for layers above.
    detail::engine_core& core() noexcept { return *core_; }

private:
    /// Keeps the engine's streams running while it lives. Throws error{closed} after stop().
    class stays_open {
    public:
        explicit stays_open(detail::engine_core& core);
        ~stays_open();
        stays_open(const stays_open&) = delete;
        stays_open& operator=(const stays_open&) = delete;

    private:
        detail::engine_core& core_;
    };

    void end();
    void define_own();
    void check_runs() const;
    void check_may_wait() const;
    void add_handler(detail::procedure_name name, std::string signature,
                     const procedure_options& options, detail::answer_form form,
                     std::unique_ptr<detail::handler_base> handler);
    const detail::remote_procedure& intern(std::string_view name, std::string signature);

    detail::engine_core* core_;
};

}  // namespace amalgam
