// Keeps a page of the dashboard current: one stream, charts, the theme, and confirmations as dialogs.
// Every page works without it.
(() => {
  'use strict';
  const root = document.documentElement;
  const THEME = 'dispatcher-theme';
  const kept = (value) => {
    try {
      return value === undefined ? localStorage.getItem(THEME) : localStorage.setItem(THEME, value);
    } catch {
      return null;
    }
  };
  const theme = kept();
  if (theme) root.dataset.theme = theme;

  // `dispatcher dev` prints an address with the token after `#`, which browsers do not send.
  const token = document.querySelector('main.bare input#token');
  if (token && location.hash.length > 1) {
    token.value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, '', location.pathname + location.search);
    token.form.submit();
  }

  const charts = [];
  const COLUMNS = { rate: [3, 1, 2], time: [4, 5], waiting: [6] };

  const time = (s) => {
    if (s == null) return '–';
    if (s === 0) return '0';
    if (s < 0.001) return `${Math.round(s * 1e6)} µs`;
    if (s < 1) return `${+(s * 1e3).toPrecision(3)} ms`;
    return s < 120 ? `${+s.toPrecision(3)} s` : `${Math.round(s / 60)} min`;
  };
  const number = (n) => {
    if (n == null) return '–';
    return n >= 100 ? Math.round(n).toLocaleString('en-US') : `${+n.toPrecision(3)}`;
  };

  const clock = (at, apart) => new Date(at * 1e3).toISOString().slice(11, apart < 60 ? 19 : 16);

  // The lines' colours are those of the theme.
  const colour = (name) => {
    const probe = document.createElement('span');
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  const draw = (row, columns) => {
    for (const chart of charts.splice(0)) chart.plot.destroy();
    const seconds = Number(row.dataset.step);
    for (const figure of row.querySelectorAll('[data-chart]')) {
      const kind = figure.dataset.chart;
      const place = figure.querySelector('.plot');
      const keys = [...figure.querySelectorAll('.key')];
      const show = kind === 'time' ? time : number;
      const [soft, line] = [colour('soft'), colour('line')];
      const lines = keys.map((key) => {
        const name = key.className.replace('key line-', '');
        return { stroke: colour(name), width: 1.5, points: { show: false }, spanGaps: false };
      });
      const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: '11px system-ui' };
      const labels = keys.map((key) => key.dataset.name ?? (key.dataset.name = key.textContent));
      const write = (plot) => {
        const at = plot.cursor.idx ?? plot.data[0].length - 1;
        keys.forEach((key, i) => {
          const value = document.createElement('b');
          value.textContent = show(plot.data[i + 1][at]);
          key.replaceChildren(`${labels[i]} `, value);
        });
      };
      const data = [columns[0], ...COLUMNS[kind].map((at) => columns[at])];
      place.replaceChildren();
      const plot = new uPlot({
        width: place.clientWidth,
        height: place.clientHeight,
        legend: { show: false },
        cursor: { y: false, points: { show: false }, drag: { x: false, y: false }, sync: { key: 'all' } },
        tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), 'Etc/UTC'),
        scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
        axes: [
          { ...axis, size: 22, gap: 4, space: 70, values: (_, all, __, ___, apart) => all.map((at) => clock(at, apart)) },
          { ...axis, size: 52, gap: 4, space: 28, values: (_, all) => all.map((one) => show(one)) },
        ],
        series: [{}, ...lines],
        hooks: { setCursor: [write], setData: [write] },
      }, data, place);
      write(plot);
      charts.push({ plot, columns: COLUMNS[kind], place, seconds });
    }
  };

  let isMissed = false;
  const load = async () => {
    const row = document.querySelector('[data-points]');
    if (!row || !window.uPlot) return;
    try {
      const answer = await fetch(row.dataset.points);
      if (answer.ok) draw(row, await answer.json());
    } catch {
      isMissed = true;
    }
  };

  let loaded = 0;
  const append = (point) => {
    // The network failed when the charts were loaded, and now it works.
    if (isMissed) {
      isMissed = false;
      load();
    }
    // Points by minute come with all others.
    if (charts[0]?.seconds > 1 && point[0][0] - loaded >= charts[0].seconds) {
      [loaded] = point[0];
      load();
    }
    for (const { plot, columns, seconds } of charts) {
      if (seconds !== 1 || point[0][0] <= (plot.data[0].at(-1) ?? 0)) continue;
      const data = [0, ...columns].map((at, i) => [...plot.data[i], point[at][0]]);
      const from = point[0][0] - Number(document.querySelector('[data-points]').dataset.over);
      const old = data[0].findIndex((at) => at >= from);
      plot.setData(old > 0 ? data.map((all) => all.slice(old)) : data);
    }
  };

  // What the head of the page says about the connection: of an action that got no answer, of the stream.
  const troubles = { action: '', stream: '' };
  const report = (trouble) => {
    const place = document.getElementById('connection');
    Object.assign(troubles, trouble);
    const text = [troubles.action, troubles.stream].filter(Boolean).join(' ');
    if (place && place.textContent !== text) place.textContent = text;
  };

  const follow = (address) => {
    let source = null;
    let last = new Date();
    let timer = 0;
    let pause = 5000;
    const say = (text) => report({ stream: text });
    const lost = () => {
      say(`Not connected. These are the numbers of ${last.toISOString().slice(11, 19)} UTC.`);
    };
    // A stream that is refused does not tell the browser's EventSource why.
    const explain = async () => {
      const asked = new AbortController();
      const answer = await fetch(address, { signal: asked.signal }).catch(() => null);
      const isText = answer?.headers.get('content-type')?.startsWith('text/plain');
      if (answer?.status === 401) say('Your session has ended. Reload this page to sign in.');
      else if (!answer?.ok && isText) await answer.text().then(say, lost);
      else lost();
      asked.abort();
    };
    const close = () => {
      clearTimeout(timer);
      source?.close();
      source = null;
    };
    const open = () => {
      if (source || document.hidden) return;
      clearTimeout(timer);
      source = new EventSource(address);
      source.addEventListener('open', () => { report({ action: '', stream: '' }); pause = 5000; root.dataset.live = 'on'; });
      source.addEventListener('parts', (event) => {
        last = new Date();
        const parts = document.createElement('template');
        parts.innerHTML = event.data;
        for (const part of parts.content.children) {
          const target = document.getElementById(part.id);
          if (target) htmx.swap({ text: part.outerHTML, target, swap: 'outerMorph' });
        }
      });
      source.addEventListener('point', (event) => append(JSON.parse(event.data)));
      source.addEventListener('stopped', () => { say('The process has stopped.'); });
      source.addEventListener('error', () => {
        if (source?.readyState !== EventSource.CLOSED) return lost();
        // After an answer that is no stream the browser does not try again.
        close();
        explain();
        timer = setTimeout(open, pause);
        pause = Math.min(2 * pause, 60000);
      });
    };
    // A tab that nobody sees asks for nothing, and keeps none of the few connections of a browser.
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) return close();
      open();
      load();
    });
    addEventListener('pagehide', close);
    addEventListener('pageshow', open);
    open();
  };

  // Shows above a form why it was refused. The form keeps what was typed.
  const refuse = async (form, answer) => {
    const parts = document.createElement('template');
    parts.innerHTML = answer ? await answer.text().catch(() => '') : '';
    let part = parts.content.querySelector('#refusal');
    if (!part) {
      part = document.createElement('div');
      part.id = 'refusal';
      part.className = 'alert bad';
      part.setAttribute('role', 'alert');
      part.textContent = answer
        ? `That did not work: HTTP status ${answer.status}.`
        : 'There was no answer. The action may have been done: check before you try again.';
    }
    document.getElementById('refusal')?.remove();
    form.before(part);
  };

  // Sends the form of an action, and leaves for the page that it leads to.
  const submit = async (event) => {
    const form = event.target;
    if (form.id !== 'confirm' || form.dataset.answer === 'page') return;
    event.preventDefault();
    if (form.ariaBusy === 'true') return;
    form.ariaBusy = 'true';
    const body = new URLSearchParams(new FormData(form));
    // It is sent even if the page is left meanwhile, where a browser can: up to 64 KiB.
    const keepalive = body.toString().length < 60_000;
    const request = { method: 'POST', headers: { 'HX-Request': 'true' }, body, keepalive };
    const answer = await fetch(form.action, request).catch(() => null);
    const to = answer?.headers.get('hx-redirect');
    if (to) return location.assign(to);
    form.ariaBusy = 'false';
    await refuse(form, answer);
  };

  const confirmations = () => {
    const dialog = document.getElementById('dialog');
    if (!dialog) return;
    document.addEventListener('htmx:after:swap', () => {
      if (!dialog.open && dialog.querySelector('#confirm')) dialog.showModal();
    });
    document.addEventListener('htmx:before:swap', () => report({ action: '' }));
    document.addEventListener('htmx:error', (event) => {
      const request = event.detail?.ctx;
      if (request && !request.response) report({ action: 'Not connected; nothing was done.' });
    });
    document.addEventListener('htmx:response:error', (event) => {
      const link = event.target.closest?.('a[href]');
      const isLeaving = event.detail?.ctx?.hx?.redirect;
      if (link && !isLeaving) location.assign(link.href);
    });
    // Text that is selected from a field out to the backdrop ends in a click there, too.
    const isOutside = ({ clientX, clientY }) => {
      const box = dialog.getBoundingClientRect();
      return clientX < box.left || clientX > box.right || clientY < box.top || clientY > box.bottom;
    };
    let beganOutside = false;
    dialog.addEventListener('pointerdown', (event) => {
      beganOutside = event.target === dialog && isOutside(event);
    });
    dialog.addEventListener('click', (event) => {
      const isBackdrop = event.target === dialog && beganOutside && isOutside(event);
      if (!isBackdrop && !event.target.closest('[data-close]')) return;
      event.preventDefault();
      dialog.close();
    });
    dialog.addEventListener('close', () => dialog.replaceChildren());
    document.addEventListener('submit', submit);
  };

  const themes = () => {
    const button = document.querySelector('[data-theme-switch]');
    if (!button) return;
    const isDark = () => getComputedStyle(root).colorScheme === 'dark'
      || (root.dataset.theme === undefined && matchMedia('(prefers-color-scheme: dark)').matches);
    const label = () => { button.textContent = isDark() ? 'Light' : 'Dark'; };
    button.hidden = false;
    label();
    button.addEventListener('click', () => {
      root.dataset.theme = isDark() ? 'light' : 'dark';
      kept(root.dataset.theme);
      label();
      load();
    });
  };

  document.addEventListener('DOMContentLoaded', () => {
    themes();
    confirmations();
    load();
    let resized = 0;
    addEventListener('resize', () => {
      clearTimeout(resized);
      resized = setTimeout(() => {
        for (const { plot, place } of charts) plot.setSize({ width: place.clientWidth, height: place.clientHeight });
      }, 100);
    });
    addEventListener('keydown', (event) => {
      const filter = document.querySelector('.filter input');
      const isTyping = event.target.closest?.('input, textarea, dialog');
      if (event.key === '/' && filter && !isTyping && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        filter.focus();
      }
    });
    const live = document.querySelector('[data-live]');
    if (live && window.EventSource) follow(live.dataset.live);
  });
})();
