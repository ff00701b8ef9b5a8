/**
 * Tallygate over HTTP, for Node 20 and later, Deno, Bun and browsers: one file without dependencies.
 *
 *     import { Tallygate } from "./tallygate.js";
 *     const limiter = new Tallygate("http://localhost:7411");
 *     const decision = await limiter.check("login", "user:42");
 *     if (decision.blocked) console.log(`try again in ${decision.retry_after_us / 1e6} s`);
 *
 * A blocked check is an answer, and no error. Answers have the names of docs/server.md.
 *
 * @typedef {{ zone: string, key: string, cost?: number, txn?: string, member?: string, critical?: boolean, record?: boolean }} Check
 * @typedef {{ allowed: boolean, blocked: boolean, zone: string, key: string, txn_id: string, reason: string, limit: number,
 *   remaining: number, retry_after_us: number | null, delay_us: number | null, ends_at: string | null, seq: number | null,
 *   zone_version: number, decided_at: string, replayed: boolean, local: string | null }} Decision
 * @typedef {{ txn_id: string, allowed: boolean, blocked: boolean, binding: string | null, retry_after_us: number | null,
 *   decisions: Omit<Decision, "allowed">[] }} Combined
 * @typedef {{ zone: string, key: string, txn_id: string, kind: string, cost: number, spent: number, remaining: number,
 *   ends_at: string | null, seq: number, zone_version: number, recorded_at: string, replayed: boolean }} Recorded
 * @typedef {{ zone: string, key: string }} Bucket
 */

/** What was not done, and why. */
export class TallygateError extends Error {
  /**
   * @param {string} message
   * @param {{ code: string, status?: number, txn?: string, cause?: unknown }} told
   */
  constructor(message, { code, status, txn, cause }) {
    super(message, { cause });
    this.name = "TallygateError";
    /** The stable name of docs/server.md: `invalid`, `conflict`, `unknown_zone`, `transient`, …; `unreachable` where no answer came. */
    this.code = code;
    /** Of the answer; undefined where none came. */
    this.status = status;
    /** The transaction that was asked for: by it the same can be asked again, and is charged once. */
    this.txn = txn;
  }

  /** True where the same may succeed later. */
  get isTransient() {
    return ["transient", "leaving", "unreachable"].includes(this.code);
  }
}

/** A server, and how it is asked. */
export class Tallygate {
  #url;
  #token;
  #fetch;
  #deadlineMs;

  /**
   * @param {string} url where the server listens: http://localhost:7411
   * @param {{ token?: string, deadlineMs?: number, fetch?: typeof globalThis.fetch }} settings how long a call may take, with
   *   the asking again after what is transient: 5 seconds unless it is said
   */
  constructor(url, { token, deadlineMs = 5_000, fetch = globalThis.fetch } = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#token = token;
    this.#fetch = fetch;
    this.#deadlineMs = deadlineMs;
  }

  /**
   * Decides whether a transaction may pass, spends its cost if it may, and records the decision. The same `txn` again is told
   * what was recorded, and spends nothing.
   * @param {string} zone
   * @param {string} key
   * @param {Omit<Check, "zone" | "key">} [options]
   * @returns {Promise<Decision>}
   */
  check(zone, key, options = {}) {
    return this.#charge("check", { zone, key, ...options });
  }

  /**
   * Several limits of one transaction: all pass, or none is spent from.
   * @param {Omit<Check, "txn">[]} checks
   * @param {{ txn?: string }} [options]
   * @returns {Promise<Combined>}
   */
  checkAll(checks, options = {}) {
    return this.#charge("check-all", { checks, ...options });
  }

  /**
   * What is left of a bucket. Spends nothing, and leaves no row.
   * @param {string} zone
   * @param {string} key
   * @param {{ member?: string }} [options]
   * @returns {Promise<Decision>}
   */
  peek(zone, key, options = {}) {
    return this.#post("peek", { zone, key, ...options });
  }

  /**
   * Charges now what is given back by itself after `ttlMs`, unless it is settled or cancelled before.
   * @param {string} zone
   * @param {string} key
   * @param {number} cost
   * @param {number} ttlMs
   * @param {{ txn?: string, critical?: boolean }} [options]
   * @returns {Promise<Decision>}
   */
  reserve(zone, key, cost, ttlMs, options = {}) {
    return this.#charge("reserve", { zone, key, cost, ttl_us: Math.round(ttlMs * 1_000), ...options });
  }

  /**
   * Turns a reservation into a charge of `cost`, once: in the bucket, or in every one that the transaction charged.
   * @param {string} txn
   * @param {number} cost
   * @param {Bucket} [bucket]
   * @returns {Promise<Recorded[]>}
   */
  settle(txn, cost, bucket) {
    return this.#undo("settle", { txn, cost, ...bucket });
  }

  /**
   * Gives a reservation back, once.
   * @param {string} txn
   * @param {Bucket} [bucket]
   * @returns {Promise<Recorded[]>}
   */
  cancel(txn, bucket) {
    return this.#undo("cancel", { txn, ...bucket });
  }

  /**
   * Gives back what a check spent, once.
   * @param {string} txn
   * @param {Bucket} [bucket]
   * @returns {Promise<Recorded[]>}
   */
  refund(txn, bucket) {
    return this.#undo("refund", { txn, ...bucket });
  }

  /**
   * Gives a slot back, once.
   * @param {string} txn
   * @param {Bucket} [bucket]
   * @returns {Promise<Recorded[]>}
   */
  release(txn, bucket) {
    return this.#undo("release", { txn, ...bucket });
  }

  /**
   * A page of the ledger, newest first; `next` of it is `before` of the one after it.
   * @param {{ zone?: string, key?: string, txn?: string, blocked?: boolean, since?: string, until?: string, limit?: number,
   *   before?: string }} [filter]
   * @returns {Promise<{ rows: Record<string, any>[], next: string | null }>}
   */
  history(filter = {}) {
    const asked = Object.entries(filter).filter(([, value]) => value !== undefined && value !== null);
    // A space as %20: the server refuses a plus, which may mean either.
    const query = asked.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&");
    return this.#ask("GET", `history?${query}`);
  }

  /**
   * Why a transaction was decided as it was.
   * @param {string} txn
   * @returns {Promise<Record<string, any>>}
   */
  explain(txn) {
    return this.#ask("GET", `transactions/${encodeURIComponent(txn)}/explanation`);
  }

  /**
   * With a name of its own, by which it can be asked again.
   * @param {string} path
   * @param {Record<string, any>} body
   */
  #charge(path, body) {
    return this.#post(path, { ...body, txn: body.txn ?? crypto.randomUUID() });
  }

  /**
   * @param {string} path
   * @param {Record<string, any>} body
   */
  async #undo(path, body) {
    return (await this.#post(path, body)).recorded;
  }

  /**
   * @param {string} path
   * @param {Record<string, any>} body
   */
  #post(path, body) {
    return this.#ask("POST", path, JSON.stringify(body), body.txn);
  }

  /**
   * Asks until it is answered or the deadline is over, after a wait that grows and differs.
   * @param {string} method
   * @param {string} path
   * @param {string} [body]
   * @param {string} [txn]
   * @returns {Promise<any>}
   */
  async #ask(method, path, body, txn) {
    const until = Date.now() + this.#deadlineMs;
    for (let tried = 1; ; tried++) {
      try {
        return await this.#once(method, path, body, txn, Math.max(1, until - Date.now()));
      } catch (error) {
        const waitMs = Math.random() * Math.min(500, 10 * 2 ** tried);
        if (!(error instanceof TallygateError && error.isTransient) || Date.now() + waitMs >= until) throw error;
        await new Promise((resolve) => setTimeout(resolve, waitMs));
      }
    }
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {string | undefined} body
   * @param {string | undefined} txn
   * @param {number} leftMs
   */
  async #once(method, path, body, txn, leftMs) {
    /** @type {Record<string, string>} */
    const headers = {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (this.#token !== undefined) headers.Authorization = `Bearer ${this.#token}`;
    let response, text;
    try {
      const signal = AbortSignal.timeout(leftMs);
      // A redirection is no answer, and gets neither the token nor the keys.
      response = await this.#fetch(`${this.#url}/v1/${path}`, { method, headers, body, signal, redirect: "manual" });
      text = await response.text();
    } catch (cause) {
      const message = `${this.#url} did not answer: ${cause instanceof Error ? cause.message : cause}`;
      throw new TallygateError(message, { code: "unreachable", txn, cause });
    }
    const { ok, status } = response;
    let told;
    try {
      told = JSON.parse(text);
    } catch (cause) {
      // Something that stands between answered, and not the server.
      const code = status >= 500 ? "unreachable" : "invalid";
      throw new TallygateError(`${this.#url} answered ${status} and no JSON`, { code, status, txn, cause });
    }
    if (ok) return told;
    throw new TallygateError(told.detail ?? `status ${status}`, { code: told.code ?? "unreachable", status, txn });
  }
}
