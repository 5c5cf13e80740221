const out = document.getElementById("out"); new EventSource("api/stream").addEventListener("sample", e => { out.textContent = JSON.stringify(JSON.parse(e.data), null, 1) })
